"""Run notebooks from top to bottom and keep their outputs.

    python notebooks/execute.py [NOTEBOOK ...]     # all of them if none is named

A notebook that fails is left as it was, with the traceback on the terminal and exit status 1. What
would differ from one machine to the next without meaning anything (kernel names, versions, times of
execution) is not written.
"""

import sys
import time
from pathlib import Path

import nbclient
import nbformat

HERE = Path(__file__).parent
SECONDS = 1800
"""Longest time for one cell, or for the kernel to start: a busy machine is not a failure."""
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; raises `nbclient.exceptions.CellExecutionError`."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        startup_timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    nbformat.validate(notebook)
    return notebook


def main(names: list[str]) -> int:
    """Execute the named notebooks in place; how many failed."""
    failed = 0
    for path in [Path(name) for name in names] or sorted(HERE.glob("*.ipynb")):
        started = time.monotonic()
        try:
            notebook = execute(path)
        except nbclient.exceptions.CellExecutionError as error:
            print(f"{path.name} failed:\n{error}", file=sys.stderr)
            failed += 1
            continue
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.monotonic() - started:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
