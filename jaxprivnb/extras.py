"""Optional dependencies: imported where they are used, with an error that says how to get them."""

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any


class MissingExtraError(ImportError):
    """A library that an extra of this package brings is not installed."""


def require(module: str, extra: str, purpose: str) -> Any:
    """Import `module`, or say which extra has it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}: pip install 'jaxprivnb[{extra}]' ({error})"
        ) from error


@contextlib.contextmanager
def progress_bar(progress: bool | None, total: int, what: str) -> Iterator[Callable[[int], None]]:
    """A progress bar, or with None one where someone is watching; what advances it."""
    watching = sys.stderr.isatty() if progress is None else progress
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        if progress:
            raise ImportError(
                "a progress bar needs rich: pip install 'jaxprivnb[terminal]'"
            ) from None
        watching = False
    if not watching:
        yield lambda n: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
