"""Kill a study at random moments, resume it each time, and compare with an undisturbed run.

    python bench/kill_resume.py [--kills 20] [--seed 0] [--engine local]

Prints one line a kill and ends with an error if a part that the manifest named is lost, if a
finished part changes, or if the final rows differ in any bit.
"""

import argparse
import hashlib
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import write

from jaxprivnb.storage import LocalStorage
from jaxprivnb.study.chunks import n_chunks
from jaxprivnb.study.folder import part_name, read_manifest
from jaxprivnb.study.load import load_study
from jaxprivnb.study.specfile import load_spec

SPEC = """\
name = "kill-resume"
seed = 11
chunk_size = 100
interval_every = 5

[grid]
n_records = [50, 200]
epsilon_per_table = [0.01, 0.1, 1.0]
n_features = 3

[replicates]
parameters = 100
datasets = 10
noise_draws = 2

[methods.naive]
[methods.vb]
[methods.exact]
[methods.bayes]
"""


def parts(out: Path) -> list[Path]:
    return list((out / "parts").glob("part-*.parquet"))


def digests(out: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in parts(out)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=("local", "dask"), default="local")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        spec_file = root / "spec.toml"
        spec_file.write_text(SPEC)
        spec = load_spec(spec_file)
        base = [sys.executable, "-m", "jaxprivnb", "study", str(spec_file), "--quiet"]
        base += ["--compilation-cache", str(root / "cache"), "--out"]
        subprocess.run([*base, str(root / "whole")], check=True)  # fills the cache
        started = time.monotonic()
        subprocess.run([*base, str(root / "again")], check=True)
        whole = time.monotonic() - started
        started = time.monotonic()
        subprocess.run([*base, str(root / "again")], check=True)  # nothing left to do
        startup = time.monotonic() - started
        assert load_study(root / "whole").equals(load_study(root / "again"))
        print(
            f"{n_chunks(spec)} chunks, {whole:.1f} s undisturbed, {startup:.1f} s of them to start"
        )

        out, more = root / "out", ["--engine", options.engine]
        chunks, kept, rows = n_chunks(spec), {}, []
        for kill in range(options.kills):
            process = subprocess.Popen([*base, str(out), *more])
            if kill % 4 == 3:  # by the clock, while it starts up
                time.sleep(rng.random() * startup)
            else:  # somewhere between the next part and the one that leaves enough for the rest
                left = (chunks - len(kept)) // (options.kills - kill + 1)
                aim = len(kept) + rng.randrange(1, max(2, 2 * left))
                while process.poll() is None and len(parts(out)) < min(aim, chunks - 1):
                    time.sleep(0.0005)
                time.sleep(rng.random() * 0.01)
            assert process.poll() is None, "the study ended before it could be killed"
            process.kill()
            process.wait()
            now = digests(out)
            named = {part_name(n) for n in read_manifest(LocalStorage(out), spec)}
            assert named <= now.keys(), f"lost: {sorted(named - now.keys())}"
            assert kept.items() <= now.items(), "a finished part changed"
            kept = now
            rows.append({"parts": len(kept), "named": len(named)})
            print(f"kill {kill + 1:2d}: {len(kept)}/{chunks} parts, {len(named)} named", flush=True)
        subprocess.run([*base, str(out), *more], check=True)
        assert kept.items() <= digests(out).items(), "a finished part changed"
        assert load_study(out).equals(load_study(root / "whole")), "rows differ"
        print(f"{options.kills} kills: same rows bit for bit, no part lost")
    if options.engine == "local":
        write("kill_resume", {"kills": options.kills, "parts": chunks, "rows": rows})


if __name__ == "__main__":
    main()
