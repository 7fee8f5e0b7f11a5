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
import os
import sys
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
    "module:function". JAX traces it, so `jax.vmap` of it must work, unless `called` says otherwise.
    """
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
    called: Literal["traced", "one", "batch"] = "traced"
    """"one": plain Python, called with one release at a time, its arrays NumPy's; "batch": with a
    leading axis of them. Only studies take those; what they may give is in
    `jaxprivnb.study.outside`."""
    learns_prior: bool = False
    """Whether it takes `prior="learned"`, and finds concentrations of its own."""
    over_counts: bool = False
    """Whether its work grows with N, since it goes over the counts 0..N. Its option `max_records`,
    if it has one, says how far."""

    def options(self) -> tuple[str, ...]:
        """Names of the fit's keyword arguments; of plain Python, all but data, prior and mask."""
        fit = imported(self.fit)
        if self.called == "traced":
            return keywords(fit)
        return tuple(name for name in parameters(fit)[1:] if name not in ("prior", "mask"))


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
    if method.called not in ("traced", "one", "batch"):
        raise ValueError(f"method.called must be 'traced', 'one' or 'batch', got {method.called!r}")
    for column in method.numbers:
        if column not in NUMBERS:
            raise ValueError(f"method.numbers must be of {', '.join(NUMBERS)}, got {column!r}")
    if METHODS.get(method.name, method) != method and not replace:
        raise ValueError(
            f"method.name must be new, got {method.name!r}; replace=True puts this one in its place"
        )
    METHODS[method.name] = method
    return method


def register_all(fits: Mapping[str, Any]) -> tuple[Method, ...]:
    """Register methods by label: a `Method`, or a function of one release in plain Python.

    A label takes the place of an earlier one, as in a notebook's second run, but not of a method of
    the package.
    """
    found = []
    for label, fit in fits.items():
        if label in _SHIPPED:
            raise ValueError(f"methods[{label!r}] is a method of the package: use another label")
        if isinstance(fit, Method):
            method = dataclasses.replace(fit, name=label)
        elif callable(fit):
            method = Method(label, fit, called="one")
        else:
            raise TypeError(
                f"methods[{label!r}] must be a function or a jaxprivnb.Method, got "
                f"{type(fit).__name__}"
            )
        found.append(register(method, replace=True))
    return tuple(found)


def plugin(text: str) -> tuple[str, Any]:
    """(Label, what is there) of "module:function" or "label=module:function".

    The module may stand in the current folder. What is there is a function of one release, or a
    `Method`.
    """
    label, _, place = text.rpartition("=")
    module, _, name = place.partition(":")
    if not (module and name):
        raise ValueError(f"a plugin must be written module:function, got {text!r}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())  # a command's own folder stands there instead
    try:
        found = imported(place)
    except Exception as error:
        raise ValueError(
            f"the plugin {place} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return label or (found.name if isinstance(found, Method) else name), found


def names(reads: str | None = None) -> tuple[str, ...]:
    """Names of all methods; or of those of releases ("tables") or true counts ("counts") that JAX
    traces.
    """
    return tuple(
        m.name
        for m in METHODS.values()
        if reads is None or (reads == m.reads and m.called == "traced")
    )


def is_shipped(method: Method) -> bool:
    """Whether it is the package's own."""
    return _SHIPPED.get(method.name) == method


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


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of all of a function's named parameters, as far as it says."""
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # of a builtin
        return ()
    return tuple(p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


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
_SHIPPED = dict(METHODS)
