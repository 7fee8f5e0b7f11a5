"""Everyone on the same releases, in one run: accuracy, calibration and speed against the field.

    make peers                                    about 35 minutes on two cores
    PYTHONPATH=bench:. python -m peers.run --quick         some minutes, for a look

Simulates releases, makes a virtual environment for each peer (newest releases from PyPI), checks
every adapter on inputs whose answers are known, runs each in a process of its own, measures all
answers alike, and writes bench/results/peers.{json,md,png}. A step is stored as soon as it is done
(under .peers/), so a run that was stopped goes on where it was; `--fresh` forgets what is stored.
"""

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from common import RESULTS, write  # noqa: E402
from peers import designs, environments, figures, measures, protocol, report  # noqa: E402
from peers.registry import OURS, PEERS, Peer  # noqa: E402

FOLDER = environments.ROOT / ".peers"


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def sources(peer: Peer) -> bytes:
    """Everything whose change makes a stored answer stale."""
    files = [environments.adapter(peer.adapter), environments.HERE / "protocol.py"]
    files += [environments.BENCH / name for name in peer.extra_sources]
    if environments.own(peer.environment):
        files += sorted((environments.ROOT / "jaxprivnb").rglob("*.py"))
    else:
        files.append(environments.HERE / "requirements" / f"{peer.environment}.txt")
    return b"".join(f.read_bytes() for f in files)


def call(peer: Peer, folder: Path, *words: str, timeout: float) -> str:
    """Run an adapter; what it printed. Its complaints are shown if it fails."""
    python = environments.python_of(peer.environment, folder)
    done = subprocess.run(
        [python, "-m", f"peers.adapters.{peer.adapter}", *words],
        env=environments.variables(peer.environment, dict(os.environ)),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        raise RuntimeError(f"{peer.name} failed:\n{done.stderr[-3000:]}")
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def measure(peer: Peer, design, releases, timed, share: float, options):
    """(answer, report) of a peer on a design, stored or run now; None if it ran out of time."""
    folder, limit = options.folder, peer.limit(design.name)
    if limit is None:
        return None
    seconds, replicates, lanes = limit
    cap = share * seconds
    accuracy = releases.part(0, min(releases.size, len(design.cells) * replicates))
    raw = peer.environment == "diffprivlib"
    hide = lambda r: r if raw else r._replace(raw=None)  # noqa: E731
    digest = hashlib.sha256(sources(peer) + repr((cap, lanes, design.intervals)).encode())
    for part in (accuracy, *timed.values()):
        for x in hide(part):
            digest.update(b"" if x is None else np.ascontiguousarray(x).tobytes())
    name = f"{peer.name}-{design.name}-{digest.hexdigest()[:16]}".replace(" ", "_")
    out = folder / "answers" / f"{name}.npz"
    if options.stored and not out.exists():
        return None
    if options.fresh or not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        job = out.with_suffix(".job.npz")
        protocol.save_job(
            job,
            hide(accuracy),
            {k: hide(v) for k, v in timed.items()},
            cap=cap,
            step=len(design.cells),
            lanes=lanes,
            intervals=int(share * design.intervals + 1) * len(design.cells),
        )
        begin = time.perf_counter()
        patience = options.patience * (6 * cap + 300)  # compiling is not under the cap
        part = out.with_suffix(".part.npz")
        try:
            call(peer, folder, "run", peer.name, str(job), str(part), timeout=patience)
        except subprocess.TimeoutExpired:
            say(f"{design.name:6} {peer.name:20} gave no answer in {patience:.0f} s")
            return None
        finally:
            job.unlink()
        part.replace(out)
        say(f"{design.name:6} {peer.name:20} {time.perf_counter() - begin:6.0f} s")
    else:
        say(f"{design.name:6} {peer.name:20} stored")
    return protocol.load_answer(out)


def check(peer: Peer, options) -> dict:
    """The adapter's errors on known inputs, from its own environment; raises if one is wrong."""
    import json

    folder = options.folder
    stored = folder / "checks" / hashlib.sha256(peer.name.encode() + sources(peer)).hexdigest()
    if not stored.exists():
        found = call(peer, folder, "check", peer.name, timeout=options.patience * 900)
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(found)
    found = json.loads(stored.read_text())
    say(f"check  {peer.name:20} " + ", ".join(f"{k}: {v:.1e}" for k, v in found.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few replicates, short limits")
    parser.add_argument("--only", nargs="+", metavar="PEER", help="peers to run; ours always does")
    parser.add_argument("--designs", nargs="+", choices=designs.DESIGNS, default=[*designs.DESIGNS])
    parser.add_argument("--fresh", action="store_true", help="forget stored answers")
    parser.add_argument("--stored", action="store_true", help="only report what was run before")
    parser.add_argument(
        "--patience", type=float, default=1.0, help="times the limit after which a step is given up"
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of environments and answers")
    parser.add_argument("--name", default=None, help="of the files in bench/results")
    arguments = parser.parse_args()
    name = arguments.name or ("peers_quick" if arguments.quick else "peers")
    mode, share = ("quick", 0.1) if arguments.quick else ("full", 1.0)
    peers = [p for p in PEERS if p.name == OURS or not arguments.only or p.name in arguments.only]
    unknown = set(arguments.only or ()) - {p.name for p in PEERS}
    if unknown:
        parser.error(f"--only: no peer {sorted(unknown)[0]!r}; there are {[p.name for p in PEERS]}")

    checks = {p.name: check(p, arguments) for p in peers}
    content = {"mode": mode, "platform": platform.platform(), "checks": checks, "designs": {}}
    versions: dict[str, dict] = {}
    for design in (designs.DESIGNS[d] for d in arguments.designs):
        replicates = design.replicates[mode]
        releases, truth = designs.simulate(design, replicates)
        timed = designs.simulate_timed(design, 1000, every=mode == "full")
        say(f"{design.title}: {releases.size} releases in {len(design.cells)} cells")
        values, reports, answers = {}, {}, {}
        for peer in peers:
            found = measure(peer, design, releases, timed, share, arguments)
            if found is not None:
                answers[peer.name], reports[peer.name] = found
                values[peer.name] = measures.per_release(
                    found[0], truth.class_probs, truth.feature_probs
                )
                versions[peer.name] = reports[peer.name]["versions"]
        if OURS not in answers:
            raise SystemExit(f"{OURS} gave no answer, and all others are compared with it")
        content["designs"][design.name] = report.summarise(design, truth, values, reports, answers)
    content["versions"] = versions
    content["targets"] = report.targets(content)
    write(name, content)
    text = report.markdown(content)
    (RESULTS / f"{name}.md").write_text(text)
    figures.plot(content, RESULTS / f"{name}.png")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
