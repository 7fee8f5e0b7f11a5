"""A virtual environment for each peer, made when first needed: peers pin what others cannot use."""

import hashlib
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BENCH = HERE.parent
ROOT = BENCH.parent


def own(name: str) -> bool:
    """Whether this is the project's own environment, the one running now."""
    return name == "jaxprivnb"


def python_of(name: str, folder: Path) -> str:
    """The interpreter of an environment, which is made or renewed if its requirements changed."""
    if own(name):
        return sys.executable
    wanted = HERE / "requirements" / f"{name}.txt"
    place = folder / name
    python = place / "bin" / "python"
    stamp = place / "requirements.sha256"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == digest):
        begin = time.perf_counter()
        print(f"making {place}", flush=True)
        call = lambda *words: subprocess.run(words, check=True)  # noqa: E731
        call(sys.executable, "-m", "venv", str(place))
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        call(*pip, "--upgrade", "--requirement", str(wanted))
        stamp.write_text(digest)
        print(f"  {time.perf_counter() - begin:.0f} s", flush=True)
    return str(python)


def variables(name: str, base: dict[str, str]) -> dict[str, str]:
    """Environment variables of an adapter: it sees `bench/`, and the package only if it is ours."""
    path = [str(BENCH), str(ROOT)] if own(name) else [str(BENCH)]
    return {**base, "PYTHONPATH": ":".join(path), "JAX_PLATFORMS": "cpu"}


def adapter(module: str) -> Path:
    """The file of an adapter."""
    return HERE / "adapters" / f"{module}.py"
