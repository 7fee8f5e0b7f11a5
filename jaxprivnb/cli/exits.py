"""How commands end: exit codes, messages, signals."""

import argparse
import contextlib
import enum
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from jaxprivnb.extras import MissingExtraError

EXIT_USAGE, EXIT_OTHER_STUDY, EXIT_STORAGE, EXIT_EXTRA, EXIT_INCOMPLETE = 2, 3, 4, 5, 6
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143

EXIT_CODES = """exit codes:
  0    done
  2    the command or an input file is wrong
  3    the folder holds another study
  4    a file could not be read or written; finished parts are intact
  5    an optional dependency is missing
  6    `study --status`: the study is not complete
  130  interrupted (143: terminated); the same command goes on with a study
"""


class Stop(enum.Enum):
    """What Ctrl-C and SIGTERM do to a command: `set_defaults(stop=...)` of its parser."""

    RESUMABLE = enum.auto()
    """Both are heard, so that it can say what it keeps, and the same command goes on with it."""
    AT_ONCE = enum.auto()
    """Both end the process: Python would only hear of them when a compiled program has run out,
    and there is nothing to keep."""
    BY_PYTHON = enum.auto()
    """SIGTERM ends the process, Ctrl-C is an exception."""


class Terminated(Exception):  # noqa: N818 - a signal, not an error
    """SIGTERM arrived."""


def guarded(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Turn what can go wrong into a message and an exit code."""
    try:
        with _signals(arguments.stop):
            return command(arguments)
    except KeyboardInterrupt:
        return _stopped(arguments.stop, "interrupted", EXIT_INTERRUPTED)
    except Terminated:
        return _stopped(arguments.stop, "terminated", EXIT_TERMINATED)
    except BrokenPipeError:  # `| head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MissingExtraError as error:
        return _failed(error, EXIT_EXTRA)
    except OSError as error:
        return _failed(error, EXIT_STORAGE)
    except ValueError as error:
        other = type(error).__name__ == "OtherStudyError"
        return _failed(error, EXIT_OTHER_STUDY if other else EXIT_USAGE)


@contextlib.contextmanager
def _signals(stop: Stop) -> Iterator[None]:
    """Signal handlers for the time of a command, as its `Stop` says."""
    handlers: dict[signal.Signals, Any] = {}
    if stop is Stop.RESUMABLE:
        handlers[signal.SIGTERM] = on_sigterm
    elif stop is Stop.AT_ONCE:
        handlers[signal.SIGINT] = signal.SIG_DFL
    if threading.current_thread() is not threading.main_thread():
        handlers = {}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def on_sigterm(signum: int, frame: Any) -> None:
    """Raise what `guarded` knows."""
    raise Terminated


def _stopped(stop: Stop, how: str, code: int) -> int:
    resumable = stop is Stop.RESUMABLE
    more = "; finished chunks are kept. Run the same command again to go on." if resumable else ""
    print(f"\njaxprivnb: {how}{more}", file=sys.stderr, flush=True)
    if resumable:
        from jaxprivnb.study.run import THREADS

        if any(thread.name.startswith(THREADS) for thread in threading.enumerate()):
            os._exit(code)  # told twice: Python's own end would wait for their compiled programs
    return code


def _failed(error: Exception, code: int) -> int:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    print(f"jaxprivnb: error: {text}", file=sys.stderr)
    return code
