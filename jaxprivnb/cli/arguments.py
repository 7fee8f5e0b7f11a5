"""What several commands take."""

import argparse
import os
from typing import Any


def add_compilation_cache(parser: Any) -> None:
    """The option that `keep_compiled` reads."""
    parser.add_argument(
        "--compilation-cache", metavar="DIR", help="keep compiled programs between runs"
    )


def keep_compiled(arguments: argparse.Namespace) -> None:
    """Tell JAX, which must not be imported yet, where to keep what it compiles."""
    if arguments.compilation_cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.abspath(arguments.compilation_cache)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


def positive(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def level(text: str) -> float:
    """A level of intervals, between 0 and 1."""
    value = positive(text)
    if value >= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text!r}")
    return value


def whole(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)
