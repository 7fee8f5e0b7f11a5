"""Optional dependencies: imported where they are used, with an error that says how to get them."""

import importlib
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
