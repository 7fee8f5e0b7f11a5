"""The methods: what each is called, which fit it is, how batches run it, how figures draw it.

This table is the only place that lists them. Everything that takes a method by name (`fit_many`,
studies, figures, `PrivateNaiveBayes`, the command line) reads it, so that one call adds a method
everywhere:

    jaxprivnb.register(jaxprivnb.Method("mine", fit_mine))

Fits are named by module and imported on first use: the table needs no JAX, so the command line can
read it at once.
"""

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

NUMBERS = ("log_evidence", "iterations", "max_decrease")
"""What studies ask of those posteriors that have it: the columns of `Method.numbers`."""


class Look(NamedTuple):
    """How a method is drawn."""

    color: str
    marker: str
    dash: str
    name: str
    """What legends call it."""


@dataclasses.dataclass(frozen=True)
class Method:
    """One way from a release to a posterior.

    Methods are sent to worker processes, so functions must be picklable, as those of a module are.
    """

    name: str
    """As in `fit_many(tables, name)`, `[methods.name]` and `--method name`."""
    fit: Callable[..., Any] | str
    """`fit(tables, prior=None, *, options...)`, the `Posterior` of one dataset; or where that is,
    "module:function". JAX traces it: `jax.vmap` of it must work."""
    look: Look | None = None
    """How figures draw it; None leaves that to them."""
    reads: Literal["tables", "counts"] = "tables"
    """A release; or the true counts, `fit(counts, prior=None, mask=None, *, options...)`, which
    only simulations can give."""
    runner: Callable[..., Any] | str | None = None
    """Makes the `jaxprivnb.many.runners.Runner` of a batch from (tables, prior, **options); None
    maps `fit` over the datasets."""
    posterior: type | str | None = None
    """The type of its posteriors, or "module:class", if no other method has it: what figures know
    an unlabelled posterior by."""
    numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Which fields of its posteriors are a study's columns `log_evidence` (of log P(m), or of a
    lower bound), `iterations` and `max_decrease`."""
    plain: bool = False
    """Whether it takes only tables that state N and were published once, as the noise left them."""
    learns_prior: bool = False
    """Whether it takes `prior="learned"`, and finds concentrations of its own."""
    over_counts: bool = False
    """Whether its work grows with N, since it goes over the counts 0..N. Its option `max_records`,
    if it has one, says how far."""

    def options(self) -> tuple[str, ...]:
        """Names of the fit's keyword arguments."""
        return keywords(imported(self.fit))


METHODS: dict[str, Method] = {}
"""By name, in the order in which they are listed to people."""


def register(method: Method, *, replace: bool = False) -> Method:
    """Add a method of your own, for everything in this process that takes a method by name.

    Studies on Dask tell their workers; another process must call it again.

    Args:
        method: the method.
        replace: whether another method of that name gives way, as in a notebook's second run.
    """
    if not isinstance(method, Method):
        raise TypeError(f"method must be a jaxprivnb.Method, got {type(method).__name__}")
    if not method.name.isidentifier():
        raise ValueError(f"method.name must be an identifier, got {method.name!r}")
    if method.reads not in ("tables", "counts"):
        raise ValueError(f"method.reads must be 'tables' or 'counts', got {method.reads!r}")
    for column in method.numbers:
        if column not in NUMBERS:
            raise ValueError(f"method.numbers must be of {', '.join(NUMBERS)}, got {column!r}")
    if METHODS.get(method.name, method) != method and not replace:
        raise ValueError(
            f"method.name must be new, got {method.name!r}; replace=True puts this one in its place"
        )
    METHODS[method.name] = method
    return method


def names(reads: str | None = None) -> tuple[str, ...]:
    """Names of all methods, or of those that read releases ("tables") or true counts ("counts")."""
    return tuple(m.name for m in METHODS.values() if reads in (None, m.reads))


def fit_function(name: str) -> Callable[..., Any]:
    """The fit of a method, for one dataset."""
    return imported(METHODS[name].fit)


def maker(posterior: Any) -> str | None:
    """The name of the method that a posterior's type is of, if there is one."""
    kind = type(posterior)
    known = (kind, f"{kind.__module__}:{kind.__qualname__}")
    return next((m.name for m in METHODS.values() if m.posterior in known), None)


def keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a function's keyword-only arguments."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)


def imported(place: Any) -> Any:
    """What "module:name" names; anything else as it is."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


# Colours are Okabe and Ito's, which colour-blind readers can tell apart.
for _method in (
    Method(
        "exact",
        "jaxprivnb.exact.fit:fit_exact",
        Look("#009E73", "D", "-", "exact posterior"),
        runner="jaxprivnb.many.runners:exact_runner",
        posterior="jaxprivnb.exact.posterior:ExactPosterior",
        numbers={"log_evidence": "log_evidence"},
        learns_prior=True,
        over_counts=True,
    ),
    Method(
        "vb",
        "jaxprivnb.variational.fit:fit_vb",
        Look("#0072B2", "o", "-.", "variational (VB)"),
        runner="jaxprivnb.many.runners:vb_runner",
        posterior="jaxprivnb.variational.fit:VariationalPosterior",
        numbers={
            "log_evidence": "elbo",
            "iterations": "iterations",
            "max_decrease": "max_decrease",
        },
        plain=True,
    ),
    Method("naive", "jaxprivnb.baselines:fit_naive", Look("#D55E00", "s", "--", "naive")),
    Method(
        "bayes",
        "jaxprivnb.baselines:fit_bayes",
        Look("#555555", "^", ":", "non-private"),
        reads="counts",
    ),
):
    register(_method)
