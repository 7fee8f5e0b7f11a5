"""What has been spent on one dataset, and the limit it must not pass.

Budgets add up over releases of the same records. A ledger with an epsilon limit takes pure
releases only, since a zCDP one promises no epsilon at delta = 0; a ledger with a rho limit takes
both, a pure table costing epsilon^2 / 2. With both limits, both hold. Limits hold to twelve
digits, so that ten releases at 0.1 fit into 1.

Budgets add up only if they are promised to the same neighbours, so a ledger has neighbours of its
own. A release that was made for others is charged what its noise costs under the ledger's, which
is never less: twice the epsilon for one by "add-remove" in a ledger of "replace", c times for one
record in a ledger of c. Where that would be no bound (N is public, and the ledger's neighbours
differ in it) or a smaller number than was promised (fewer contributions) it is refused.
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
from jaxprivnb.noise import Neighbours, check_neighbours
from jaxprivnb.privacy import sealed
from jaxprivnb.privacy.record import Guarantee, Release, relation
from jaxprivnb.storage import check_path

FORMAT = "jaxprivnb ledger"
VERSION = 1
_ROUNDING = 1e-12
_MAX_ENTRIES = 100_000
_USUAL = {"neighbours": "replace", "contributions": 1}
"""What a ledger, and a file that does not say otherwise, is for."""


class BudgetExceededError(ValueError):
    """A release was refused: it would have passed a ledger's limit."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One charge."""

    epsilon: float
    """Pure cost under the ledger's neighbours; infinite for a zCDP release."""
    rho: float
    """zCDP cost under the ledger's neighbours."""
    when: str
    """UTC, to the second."""
    neighbours: Neighbours = "replace"
    """Those that the release was made for."""
    contributions: int = 1
    """The same."""


class PrivacyLedger:
    """Composes the releases of one dataset; refuses the one that would pass a limit.

    A charge is made before noise is drawn and stays if the release then fails: a budget that may
    have been spent is spent. With a `path` every charge is on disk before noise is drawn, and
    several processes may share the file (where the system has `flock`; a `.lock` stays beside it).
    The path is resolved once: links to the file lead to the same account, and a file with several
    names of its own (hard links), which would become several accounts, is refused.
    A copy of a ledger is the ledger itself; a pickle of one is its file, which it then must have.

    Args:
        epsilon_limit: largest total epsilon, or None.
        rho_limit: largest total rho, or None.
        path: a file to keep the ledger in; one that exists is gone on with, under its limits.
        neighbours: "replace" or "add-remove", whose budgets are added; None for a file's own, and
            "replace" for a new ledger.
        contributions: records of one person, at most; None for a file's own, 1 for a new ledger.
    """

    def __init__(
        self,
        epsilon_limit: float | None = None,
        rho_limit: float | None = None,
        path: str | os.PathLike[str] | None = None,
        *,
        neighbours: Neighbours | None = None,
        contributions: int | None = None,
    ) -> None:
        given: dict[str, Any] = {"epsilon_limit": epsilon_limit, "rho_limit": rho_limit}
        for name, value in given.items():
            if value is not None:
                given[name] = validate.real_number(name, value, above=0)
        given |= {"neighbours": neighbours, "contributions": contributions}
        terms = given | {k: v for k, v in _USUAL.items() if given[k] is None}
        check_neighbours(terms["neighbours"], terms["contributions"])
        self._path = None if path is None else os.path.realpath(check_path("path", path))
        self._terms = terms
        self._entries: tuple[Entry, ...] = ()
        self._mutex = threading.Lock()
        begins = self._path is None or not os.path.exists(self._path)
        if begins and epsilon_limit is None and rho_limit is None:
            raise TypeError("give epsilon_limit, rho_limit or both")
        if self._path is None:
            return
        with self._locked():
            if not os.path.exists(self._path):  # unless another process has just begun it
                self._write(self._entries)
            self._read()
        for name, value in given.items():
            if value is not None and value != self._terms[name]:
                raise ValueError(
                    f"{self._path} has {name}={self._terms[name]}, not {value}: "
                    "a ledger's limits do not change, nor do its neighbours"
                )

    @property
    def epsilon_limit(self) -> float | None:
        """The largest total epsilon."""
        return self._terms["epsilon_limit"]

    @property
    def rho_limit(self) -> float | None:
        """The largest total rho."""
        return self._terms["rho_limit"]

    @property
    def neighbours(self) -> Neighbours:
        """Those whose budgets are added, "replace" or "add-remove"."""
        return self._terms["neighbours"]

    @property
    def contributions(self) -> int:
        """Records in which they differ, at most."""
        return self._terms["contributions"]

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

        It costs what its noise promises to the ledger's neighbours.
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
            if not (0 < guarantee.total < math.inf and 0 < guarantee.rho < math.inf):
                raise ValueError("charge takes a release whose cost is finite and above 0")
            cost = self._cost(guarantee)
            entry = Entry(
                cost.epsilon(), cost.rho, when, guarantee.neighbours, guarantee.contributions
            )
            entries = (*self._entries, entry)
            self._check(entries)
            if self._path is not None:
                self._write(entries)
            self._entries = entries

    def _cost(self, promise: Guarantee) -> Guarantee:
        """The promise to this ledger's neighbours, where that is one, and no smaller a cost."""
        if promise.contributions > self.contributions:
            raise BudgetExceededError(
                f"this ledger adds budgets for contributions={self.contributions}, and the release "
                f"is for {promise.contributions} records of one person: begin a ledger with "
                f"contributions={promise.contributions}"
            )
        if promise.neighbours == "replace" and self.neighbours == "add-remove":
            raise BudgetExceededError(
                "this ledger adds budgets for neighbours='add-remove', to which a release that "
                "publishes N promises nothing: give the release neighbours='add-remove', or begin "
                "a ledger with neighbours='replace'"
            )
        return promise.under(self.neighbours, self.contributions)

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
                asked = relation(entries[-1].neighbours, entries[-1].contributions)
                own = relation(self.neighbours, self.contributions)
                to = "" if asked == own else f" to {own}, converted from one to {asked}"
                raise BudgetExceededError(
                    f"the release would cost {name} {cost:g}{to}; {spent:g} of {limit:g} are "
                    f"spent, {max(limit - spent, 0):g} are left"
                )
        if len(entries) > _MAX_ENTRIES:
            raise BudgetExceededError(f"a ledger holds at most {_MAX_ENTRIES} releases")

    def _read(self) -> None:
        assert self._path is not None
        content = sealed.unseal(self._path, FORMAT, VERSION)
        if os.path.realpath(self._path) != self._path:
            raise ValueError(
                f"{self._path} has become a link, and a charge would replace it: open the ledger "
                "anew where it is now"
            )
        if os.stat(self._path).st_nlink > 1:
            raise ValueError(
                f"{self._path} has more than one name (hard links), and a charge would part them: "
                "delete the others"
            )
        try:
            self._terms, self._entries = _parse(content)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from None

    def _write(self, entries: tuple[Entry, ...]) -> None:
        assert self._path is not None
        rows = [
            {
                "epsilon": e.epsilon if math.isfinite(e.epsilon) else None,
                "rho": e.rho,
                "when": e.when,
                "neighbours": e.neighbours,
                "contributions": e.contributions,
            }
            for e in entries
        ]
        sealed.write(self._path, sealed.seal(FORMAT, VERSION, {**self._terms, "entries": rows}))

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
        # Never through a link, and to be read only: the file that is opened may be anyone's.
        path = f"{self._path}.lock"
        try:
            lock = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise OSError(error.errno, f"cannot open {path}: {error.strerror}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

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
        return PrivacyLedger, (None, None, self._path)

    def __repr__(self) -> str:
        parts = [
            f"{name} {spent:g} of {limit:g} spent"
            for name, spent, limit in (
                ("epsilon", self.epsilon_spent, self.epsilon_limit),
                ("rho", self.rho_spent, self.rho_limit),
            )
            if limit is not None
        ]
        own = relation(self.neighbours, self.contributions)
        n_others = sum(relation(e.neighbours, e.contributions) != own for e in self._entries)
        others = f", {n_others} converted to it" if n_others else ""
        return f"PrivacyLedger({', '.join(parts)}, {len(self._entries)} releases, {own}{others})"


def _parse(content: dict[str, Any]) -> tuple[dict[str, Any], tuple[Entry, ...]]:
    number = (float, int)
    optional = (float, int, type(None))
    kinds = {"neighbours": str, "contributions": int}
    *terms, rows = sealed.fields(
        content,
        "the ledger",
        {"epsilon_limit": optional, "rho_limit": optional, **kinds, "entries": list},
        defaults=_USUAL,
    )
    names = ("epsilon_limit", "rho_limit")
    limits = terms[:2]
    for name, limit in zip(names, limits, strict=True):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} must be above 0")
    if limits == [None, None]:
        raise ValueError("a ledger needs a limit")
    check_neighbours(*terms[2:])
    if len(rows) > _MAX_ENTRIES:
        raise ValueError(f"more than {_MAX_ENTRIES} entries")
    entries = []
    for number_, row in enumerate(rows):
        where = f"entries[{number_}]"
        epsilon, rho, when, neighbours, contributions = sealed.fields(
            row, where, {"epsilon": optional, "rho": number, "when": str, **kinds}, defaults=_USUAL
        )
        check_neighbours(neighbours, contributions)
        if not rho > 0 or (epsilon is not None and not epsilon > 0):
            raise ValueError(f"{where} must have costs above 0")
        pure = math.inf if epsilon is None else float(epsilon)
        entries.append(Entry(pure, float(rho), when, neighbours, contributions))
    return dict(zip((*names, *_USUAL), terms, strict=True)), tuple(entries)
