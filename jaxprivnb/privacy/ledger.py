"""What has been spent on one dataset, and the limit it must not pass.

Budgets add up over releases of the same records. A ledger with an epsilon limit takes pure
releases only, since a zCDP one promises no epsilon at delta = 0; a ledger with a rho limit takes
both, a pure table costing epsilon^2 / 2. With both limits, both hold. Limits hold to twelve
digits, so that ten releases at 0.1 fit into 1.
"""

import contextlib
import dataclasses
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from jaxprivnb import validate
from jaxprivnb.privacy import sealed
from jaxprivnb.privacy.record import Guarantee, Release

FORMAT = "jaxprivnb ledger"
VERSION = 1
_ROUNDING = 1e-12
_MAX_ENTRIES = 100_000


class BudgetExceededError(ValueError):
    """A release was refused: it would have passed a ledger's limit."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One charge."""

    epsilon: float
    """Pure cost; infinite for a zCDP release."""
    rho: float
    """zCDP cost."""
    when: str
    """UTC, to the second."""


class PrivacyLedger:
    """Composes the releases of one dataset; refuses the one that would pass a limit.

    A charge is made before noise is drawn and stays if the release then fails: a budget that may
    have been spent is spent. With a `path` every charge is on disk before noise is drawn, and
    several processes may share the file (where the system has `flock`; a `.lock` stays beside it).
    A copy of a ledger is the ledger itself; a pickle of one is its file, which it then must have.

    Args:
        epsilon_limit: largest total epsilon, or None.
        rho_limit: largest total rho, or None.
        path: a file to keep the ledger in; one that exists is gone on with, under its limits.
    """

    def __init__(
        self,
        epsilon_limit: float | None = None,
        rho_limit: float | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        given = {"epsilon_limit": epsilon_limit, "rho_limit": rho_limit}
        for name, value in given.items():
            if value is not None:
                given[name] = validate.real_number(name, value, above=0)
        self._path = None if path is None else os.fspath(path)
        self._limits = given
        self._entries: tuple[Entry, ...] = ()
        self._mutex = threading.Lock()
        begins = self._path is None or not os.path.exists(self._path)
        if begins and all(value is None for value in given.values()):
            raise TypeError("give epsilon_limit, rho_limit or both")
        if self._path is None:
            return
        with self._locked():
            if not os.path.exists(self._path):  # unless another process has just begun it
                self._write(self._entries)
            self._read()
        for name, value in given.items():
            if value is not None and value != self._limits[name]:
                raise ValueError(
                    f"{self._path} has {name}={self._limits[name]}, not {value:g}: "
                    "a ledger's limits do not change"
                )

    @property
    def epsilon_limit(self) -> float | None:
        """The largest total epsilon."""
        return self._limits["epsilon_limit"]

    @property
    def rho_limit(self) -> float | None:
        """The largest total rho."""
        return self._limits["rho_limit"]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The charges so far, oldest first."""
        return self._entries

    @property
    def epsilon_spent(self) -> float:
        """Total pure cost; infinite once a zCDP release is in."""
        return math.fsum(e.epsilon for e in self._entries)

    @property
    def rho_spent(self) -> float:
        """Total zCDP cost."""
        return math.fsum(e.rho for e in self._entries)

    def charge(self, spent: Guarantee | Release) -> None:
        """Write a release down, or raise `BudgetExceededError` and write nothing.

        `jaxprivnb.release(..., ledger=ledger)` does this itself; call it for a release of the same
        records that was made without the ledger.
        """
        guarantee = spent.guarantee if isinstance(spent, Release) else spent
        if not isinstance(guarantee, Guarantee):
            raise TypeError(f"charge takes a Release, got {type(spent).__name__}")
        with self._locked():
            if self._path is not None:
                self._read()
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            entry = Entry(guarantee.epsilon(), guarantee.rho, when)
            entries = (*self._entries, entry)
            self._check(entries)
            if self._path is not None:
                self._write(entries)
            self._entries = entries

    def _check(self, entries: tuple[Entry, ...]) -> None:
        for name, limit in (("epsilon", self.epsilon_limit), ("rho", self.rho_limit)):
            if limit is None:
                continue
            *before, cost = (getattr(e, name) for e in entries)
            if math.isinf(cost):
                raise BudgetExceededError(
                    "this ledger has an epsilon limit, and a release by rho_total promises no "
                    "epsilon: use epsilon_total, or a ledger with a rho_limit only"
                )
            spent = math.fsum(before)
            if spent + cost > limit * (1 + _ROUNDING):
                raise BudgetExceededError(
                    f"the release would cost {name} {cost:g}; {spent:g} of {limit:g} are spent, "
                    f"{max(limit - spent, 0):g} are left"
                )
        if len(entries) > _MAX_ENTRIES:
            raise BudgetExceededError(f"a ledger holds at most {_MAX_ENTRIES} releases")

    def _read(self) -> None:
        assert self._path is not None
        content = sealed.unseal(self._path, FORMAT, VERSION)
        try:
            self._limits, self._entries = _parse(content)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None

    def _write(self, entries: tuple[Entry, ...]) -> None:
        assert self._path is not None
        rows = [
            {
                "epsilon": e.epsilon if math.isfinite(e.epsilon) else None,
                "rho": e.rho,
                "when": e.when,
            }
            for e in entries
        ]
        sealed.write(self._path, sealed.seal(FORMAT, VERSION, {**self._limits, "entries": rows}))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the ledger against other threads and processes; a lock dies with its holder."""
        with self._mutex, self._file_locked():
            yield

    @contextlib.contextmanager
    def _file_locked(self) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:  # not on this system
            fcntl = None  # type: ignore[assignment]
        if self._path is None or fcntl is None:
            yield
            return
        with open(f"{self._path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def __copy__(self) -> "PrivacyLedger":
        return self  # an account, not a value: a copy that charged apart would hide what is spent

    def __deepcopy__(self, memo: Any) -> "PrivacyLedger":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is None:
            raise TypeError(
                "a PrivacyLedger without a path cannot be pickled: the copy would be charged apart "
                "from it. Give it a path, and every process charges the same file"
            )
        return PrivacyLedger, (None, None, os.path.abspath(self._path))

    def __repr__(self) -> str:
        parts = [
            f"{name} {spent:g} of {limit:g} spent"
            for name, spent, limit in (
                ("epsilon", self.epsilon_spent, self.epsilon_limit),
                ("rho", self.rho_spent, self.rho_limit),
            )
            if limit is not None
        ]
        return f"PrivacyLedger({', '.join(parts)}, {len(self._entries)} releases)"


def _parse(content: dict[str, Any]) -> tuple[dict[str, float | None], tuple[Entry, ...]]:
    number = (float, int)
    optional = (float, int, type(None))
    *limits, rows = sealed.fields(
        content,
        "the ledger",
        {"epsilon_limit": optional, "rho_limit": optional, "entries": list},
    )
    names = ("epsilon_limit", "rho_limit")
    for name, limit in zip(names, limits, strict=True):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} must be above 0")
    if limits == [None, None]:
        raise ValueError("a ledger needs a limit")
    if len(rows) > _MAX_ENTRIES:
        raise ValueError(f"more than {_MAX_ENTRIES} entries")
    entries = []
    for number_, row in enumerate(rows):
        where = f"entries[{number_}]"
        epsilon, rho, when = sealed.fields(
            row, where, {"epsilon": optional, "rho": number, "when": str}
        )
        if not rho > 0 or (epsilon is not None and not epsilon > 0):
            raise ValueError(f"{where} must have costs above 0")
        entries.append(Entry(math.inf if epsilon is None else float(epsilon), float(rho), when))
    return dict(zip(names, limits, strict=True)), tuple(entries)
