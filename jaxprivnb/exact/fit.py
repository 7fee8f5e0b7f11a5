"""`fit_exact`: from a release to its exact posterior."""

import contextlib
import dataclasses
import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxprivnb import validate
from jaxprivnb._pytree import with_fields
from jaxprivnb.exact import certificate, moments, plan
from jaxprivnb.exact.aim import Aims, look
from jaxprivnb.exact.dataset import Dataset
from jaxprivnb.exact.fourier import Fourier
from jaxprivnb.exact.learn import LEARNED, learn
from jaxprivnb.exact.moments import Moments
from jaxprivnb.exact.path import Path, Refitted
from jaxprivnb.exact.posterior import ExactPosterior
from jaxprivnb.exact.tree import Pass, upward
from jaxprivnb.measurement import Measurement
from jaxprivnb.posterior import named_after
from jaxprivnb.status import Status
from jaxprivnb.tables import NoisyTables, Prior, check_type, not_a_prior, resolve_prior


def fit_exact(
    tables: NoisyTables,
    prior: Prior | str | None = None,
    *,
    n_records_prior: Any = None,
    tolerance: float | None = None,
    max_records: int | None = None,
) -> "ExactPosterior":
    """The exact posterior given noisy tables.

    Nothing is approximated. For large N only the counts that carry mass are computed; the windows
    are widened until a bound on the mass left out (`lost_mass`) is below the tolerance.

    Args:
        tables: one release, counts `[I, K, J]`.
        prior: Dirichlet concentrations; uniform if None. "learned" takes one for P(Y) and one for
            each feature from the release itself, by the exact evidence (type-II maximum
            likelihood); see `prior_status` of the posterior.
        n_records_prior: log weights of N = 0, 1, ..., `[S]`, for tables that do not say N; other N
            have none. None: every N has the same weight.
        tolerance: largest acceptable `lost_mass`; 1e-10 in float64 and 5e-4 in float32 if None.
        max_records: an upper limit of N that is known when tracing. Only of use under an outer
            `jax.jit`, where N itself cannot be read: all counts 0..max_records are then computed.
            Without it, such a fit uses windows of fixed length, and a replicate that needs more
            says so with `Status.LOST_MASS`.
    """
    tolerance = resolve_tolerance(tolerance, check_type(tables).counts.dtype)
    if max_records is not None:
        max_records = validate.whole_number("max_records", max_records)
    with _known_numbers():
        tables.check("fit_exact")
        learned, given = is_learned(prior), None if isinstance(prior, str) else prior
        if isinstance(prior, str) and not learned:
            raise not_a_prior(prior)
        own = with_n_records(resolve_prior(given, tables.counts, tables.mask), n_records_prior)
        if all(validate.is_concrete(x) for x in jax.tree.leaves((tables, own))):
            path = plan.choose(tables, own, max_records=max_records)
            if not learned:
                return named_after(fit_widening(tables, own, path, tolerance), tables)
            found = fit_learned(tables, own, path, tolerance)
            warn_of_uniform(found)
            return named_after(found, tables)
    path = plan.choose_when_traced(tables, own, max_records)
    if not learned:
        return fit_path(tables, own, path, tolerance)
    if any(map(plan.has_slope, jax.tree.leaves((tables, own)))):
        raise TypeError(
            "a learned prior has no derivative: fit_prior finds one, and fit_exact of that prior "
            "has derivatives"
        )
    return fit_path_learned(tables, own, plan.for_any_prior(path), tolerance)


def _known_numbers() -> contextlib.AbstractContextManager[None]:
    """Where numbers that are known stay so, also under an outer `jit` that closes over them.

    Only there: in it constants of inner programs are computed one by one, which takes longer than
    all their compiling.
    """
    outermost = validate.is_concrete(jnp.zeros(()))
    return contextlib.nullcontext() if outermost else jax.ensure_compile_time_eval()


def with_n_records(prior: Prior, log_weights: Any) -> Prior:
    """The prior with the log weights of N that were given beside it, if any."""
    if log_weights is None:
        return prior
    if prior.n_records is not None:
        raise TypeError("give n_records_prior or prior.n_records, not both")
    weights = validate.as_float_array("n_records_prior", log_weights, prior.feature.dtype)
    return Prior(prior.class_, prior.feature, weights)


def resolve_tolerance(tolerance: float | None, dtype: DTypeLike) -> float:
    """The tolerance to use with a dtype: the caller's, or its default."""
    if tolerance is None:
        return 1e-10 if jnp.finfo(dtype).eps < 1e-10 else 5e-4
    return validate.real_number("tolerance", tolerance, above=0, below=1)


@partial(jax.jit, static_argnames=("path", "tolerance"))
def fit_path(
    tables: NoisyTables,
    prior: Prior,
    path: Path,
    tolerance: float,
    aims: Aims | None = None,
) -> "ExactPosterior":
    """The posterior of one dataset by the given path; pure, for `jax.vmap`.

    Args:
        tables: one release.
        prior: concentrations of the same shapes and dtype; see `resolve_prior`.
        path: from `plan`, for the dataset or for a whole batch.
        tolerance: above this `lost_mass` the status is `LOST_MASS`.
        aims: where the class counts are expected; looked for if None.
    """
    good = tables.is_valid() & prior.is_valid(tables.real)
    tables, prior = benign(good, tables, prior)
    return _concluded(good, tables, prior, upward(tables, prior, path, aims), path, tolerance)


@partial(jax.jit, static_argnames=("path", "tolerance"))
def _concluded(
    good: jax.Array, tables: NoisyTables, prior: Prior, up: Pass, path: Path, tolerance: float
) -> "ExactPosterior":
    """Moments, certificate and status of a dataset that is `good`, from its messages."""
    data, start, pmf = up.data, up.messages.start, up.root.pmf
    sums = path.pulled(up.messages, moments.feature_weights(data, pmf, start))
    feature_mean, feature_sd, wrong = moments.feature_moments(data, pmf, start, sums)
    classes = moments.class_moments(data, pmf, start, up.together())
    found = Moments(*classes, feature_mean, feature_sd)
    lost, likely = certificate.lost_mass(up.messages, up.root, data, whole=path.whole)
    finite = jnp.isfinite(up.log_evidence)
    for leaf in found:
        finite &= jnp.all(jnp.isfinite(leaf))
    # What is certain, that mass and means add up, is looked at as well.
    lost = jnp.maximum(lost, jnp.maximum(wrong, jnp.abs(found.class_mean.sum() - 1)))
    lost = jnp.where(path.suits(data), jnp.where(finite, lost, 1), 1)
    status = jnp.where(lost > tolerance, Status.LOST_MASS.value, Status.SUCCESS.value)
    # Where nothing is known the evidence is 0: then all of it is lost.
    everything = jnp.isneginf(up.log_evidence)
    status = jnp.where(finite | everything, status, Status.NON_FINITE.value)
    status = jnp.where(good, status, Status.BAD_INPUT.value)
    blank = lambda x: jnp.where(good, x, jnp.nan)  # noqa: E731
    return ExactPosterior(
        mask=tables.real,
        status=status.astype(jnp.int32),
        tables=tables,
        prior=prior,
        path=path,
        start=start,
        log_evidence=blank(up.log_evidence),
        lost_mass=blank(lost),
        class_count_pmf=blank(pmf),
        n_records_pmf=jax.tree.map(blank, up.root.n_records_pmf),
        # Without N nothing ties the classes together, and far away bounds are those of rounding.
        likely=_middle_and_reach(likely if data.log_n is None else pmf, start, data),
        moments=Moments(*map(blank, found)),
    )


def fit_widening(
    tables: NoisyTables, prior: Prior, path: Path, tolerance: float
) -> "ExactPosterior":
    """Fit one dataset, and go on to wider paths while too much is lost."""
    fitted = _fit_one(tables, prior, path, tolerance)
    if int(fitted.status) in RETRY:
        for wider in plan.wider_than(path, tables, prior):
            fitted = _fit_one(tables, prior, wider, tolerance, fitted.likely)
            if int(fitted.status) not in RETRY:
                break
    return fitted


def _fit_one(
    tables: NoisyTables, prior: Prior, path: Path, tolerance: float, likely: Aims | None = None
) -> "ExactPosterior":
    """`fit_path` of a valid dataset in three programs, which other fits and questions share."""
    aims = path.scout and look(tables, prior, path.scout, likely)
    up = upward(tables, prior, path, aims)
    return _concluded(np.asarray(True), tables, prior, up, path, tolerance)


@partial(jax.jit, static_argnames=("path", "tolerance"))
def fit_path_learned(
    tables: NoisyTables,
    prior: Prior,
    path: Fourier,
    tolerance: float,
    known: Aims | None = None,
) -> "ExactPosterior":
    """`fit_path` under the prior that the dataset asks for, else under the uniform one; pure.

    Args:
        tables: one release.
        prior: the uniform one, with the weights of N if there are any.
        path: one for any concentrations, from `plan.for_any_prior`.
        tolerance: as in `fit_path`.
        known: where the class counts are expected; looked for if None.
    """
    good = tables.is_valid() & prior.is_valid(tables.real)
    clean, uniform = benign(good, tables, prior)
    own, status = learn(clean, uniform, path, known)
    own = jax.tree.map(lambda a, b: jnp.where(good, a, b), own, prior)
    status = jnp.where(good, status, Status.BAD_INPUT.value).astype(jnp.int32)
    found = fit_path(tables, own, path, tolerance, known)
    return dataclasses.replace(found, prior_status=status)


def fit_learned(
    tables: NoisyTables, prior: Prior, path: Path, tolerance: float
) -> "ExactPosterior":
    """Fit one dataset under the prior that it asks for; under the uniform one if that fails.

    A maximum of the evidence counts where `lost_mass` says that the evidence was computed right. So
    the uniform prior goes first, by as wide a path as it needs, and the search takes that path.
    """
    uniform = fit_widening(tables, prior, plan.for_any_prior(path), tolerance)
    failed = int(uniform.status)
    if failed == Status.SUCCESS:
        wide, known = uniform.path, uniform.likely
        for _ in range(_SEARCHES):
            own, status = _learned(tables, prior, wide, known)
            if failed := int(status):
                break
            fitted = fit_widening(tables, own, wide, tolerance)
            failed = int(fitted.status)
            if fitted.path == wide:
                break
            wide, known = fitted.path, fitted.likely
        else:
            failed = Status.LOST_MASS.value
        if failed == Status.SUCCESS:
            return dataclasses.replace(fitted, prior_status=jnp.zeros((), jnp.int32))
    return dataclasses.replace(uniform, prior_status=jnp.asarray(failed, jnp.int32))


_SEARCHES = 3
"""Times that a prior is looked for, where the one found needs a wider path than the last."""
_learned = jax.jit(learn, static_argnames="path")


def is_learned(prior: Any) -> bool:
    """Whether the argument `prior` asks for one from the release itself."""
    return isinstance(prior, str) and prior == LEARNED


def warn_of_uniform(posterior: "ExactPosterior") -> None:
    """Say, at the line that called the fit, of how many good datasets no prior was learned."""
    codes = np.asarray(posterior.prior_status).ravel()
    failed = codes[(codes != Status.SUCCESS) & (codes != Status.BAD_INPUT)]
    if failed.size:
        worst = Status(int(failed.max()))
        which = "" if codes.size == 1 else f" of {failed.size} of {codes.size} datasets"
        warnings.warn(
            f"no prior could be learned{which} ({worst.name}), and the uniform one was taken: see "
            "prior_status",
            UserWarning,
            stacklevel=3,
        )


def refit(posterior: "ExactPosterior", tolerance: float) -> "ExactPosterior":
    """A batch with one leading axis, those of its datasets that lost too much fitted anew.

    What a dataset goes through is what `fit_exact` would take it through.
    """
    lost = np.flatnonzero(np.isin(np.asarray(posterior.status), RETRY))
    if not lost.size:
        return posterior
    found: dict[int, ExactPosterior] = {}
    take = lambda tree, rows: jax.tree.map(lambda x: x[rows], tree)  # noqa: E731
    if posterior.path.whole:
        likely = jax.tree.map(np.array, posterior.likely)
        for wider in plan.wider_than(posterior.path, posterior.tables, posterior.prior):
            tables, prior = take((posterior.tables, posterior.prior), lost)
            anew = _fit_rows(tables, prior, take(likely, lost), wider, tolerance)
            for x, y in zip(*map(jax.tree.leaves, (likely, anew.likely)), strict=True):
                x[lost] = y
            mended = ~np.isin(np.asarray(anew.status), RETRY)
            found |= {int(lost[r]): take(anew, r) for r in np.flatnonzero(mended)}
            lost = lost[~mended]
            if not lost.size:
                break
    for r in lost:
        one, own = take((posterior.tables, posterior.prior), r)
        # What suits a batch's widest noise and strongest prior may not suit each of its datasets.
        path = posterior.path
        path = plan.choose_within(path, one, own) if path.whole else path
        if path != posterior.path or not path.whole:
            found[int(r)] = fit_widening(one, own, path, tolerance)
    return _patched(posterior, found) if found else posterior


RETRY = (Status.LOST_MASS.value, Status.NON_FINITE.value)
"""What a wider path may mend."""
_ROWS = 32
"""Datasets that are fitted anew side by side."""


def refit_learned(posterior: "ExactPosterior", tolerance: float) -> "ExactPosterior":
    """The same where priors are learned: each of those datasets by itself, its prior too."""
    codes = np.stack([np.asarray(posterior.status), np.asarray(posterior.prior_status)])
    found: dict[int, ExactPosterior] = {}
    for r in np.flatnonzero(np.isin(codes, RETRY).any(0)):
        one, own = jax.tree.map(lambda x, r=r: x[r], (posterior.tables, posterior.prior))
        uniform = with_fields(own, **_ones(own))
        path = plan.choose_within(posterior.path, one, uniform)
        found[int(r)] = fit_learned(one, uniform, path, tolerance)
    return _patched(posterior, found) if found else posterior


def _ones(prior: Prior) -> dict[str, Any]:
    """The concentrations of the uniform prior, in the shape of another."""
    return {"class_": jnp.ones_like(prior.class_), "feature": jnp.ones_like(prior.feature)}


def _fit_rows(
    tables: NoisyTables, prior: Prior, likely: Aims, path: Path, tolerance: float
) -> "ExactPosterior":
    """`fit_path` over a leading axis, a few datasets at a time."""
    size = tables.counts.shape[0]
    fit = jax.vmap(lambda t, p, a: fit_path(t, p, path, tolerance, a))
    pieces = []
    for start in range(0, size, _ROWS):
        rows = np.minimum(np.arange(start, start + _ROWS), size - 1)
        pieces.append(fit(*jax.tree.map(lambda x, r=rows: x[r], (tables, prior, likely))))
    return jax.tree.map(lambda *x: jnp.concatenate(x)[:size], *pieces)


def _patched(posterior: "ExactPosterior", found: dict[int, "ExactPosterior"]) -> "ExactPosterior":
    """The batch with some of its datasets replaced."""
    width = max(x.class_count_pmf.shape[-1] for x in (posterior, *found.values()))
    paths = [x.path.questions for x in (posterior, *found.values())]
    widest = max(paths, key=lambda p: (p.whole, p.tilts, p.length, p.window))
    mixed = Refitted(posterior.path, widest)

    def wide(one: ExactPosterior) -> list[np.ndarray]:
        pmf = np.asarray(one.class_count_pmf)
        pad = [(0, 0)] * (pmf.ndim - 1) + [(0, width - pmf.shape[-1])]
        one = dataclasses.replace(one, class_count_pmf=jnp.asarray(np.pad(pmf, pad)), path=mixed)
        return [np.array(x) for x in jax.tree.leaves(one)]

    leaves = wide(posterior)
    for r, one in found.items():
        for all_, own in zip(leaves, wide(one), strict=True):
            all_[r] = own
    whole = dataclasses.replace(
        posterior, path=mixed, class_count_pmf=jnp.zeros((*posterior.start.shape, width))
    )
    return jax.tree.unflatten(jax.tree.structure(whole), [jnp.asarray(x) for x in leaves])


def _middle_and_reach(pmf: jax.Array, start: jax.Array, data: Dataset) -> Aims:
    """The middle of where the class counts are, and how far they reach.

    Where N is not known their tails go much further up than down: then the middle is the mean.
    """
    n = start[:, None] + jnp.arange(pmf.shape[-1], dtype=start.dtype)
    some = pmf > 1e-3 * jnp.finfo(pmf.dtype).eps * pmf.max(-1, keepdims=True)
    low = jnp.where(some, n, jnp.inf).min(-1)
    high = jnp.where(some, n, -jnp.inf).max(-1)
    fine = jnp.isfinite(low) & jnp.isfinite(high)
    low, high = jnp.where(fine, low, n[:, 0]), jnp.where(fine, high, n[:, -1])
    middle = 0.5 * (low + high)
    if data.log_n is not None:
        middle = jnp.where(fine, (pmf * n).sum(-1) / jnp.where(fine, pmf.sum(-1), 1), middle)
    reach = jnp.maximum(high - middle, middle - low) + 1
    return Aims(middle, reach, reach / 6)


def benign(good: jax.Array, tables: NoisyTables, prior: Prior) -> tuple[NoisyTables, Prior]:
    """The same data if `good`, else an empty dataset, so that no NaN travels through the fit.

    The prior stays what it is beside bad tables: shared by a batch, it is then worked on once.
    """
    pick = lambda x, safe: jnp.where(good, x, jnp.asarray(safe, x.dtype))  # noqa: E731

    def safely(one: Measurement) -> dict[str, Any]:
        at = lambda x: None if x is None else pick(jnp.where(tables.real, x, 0), 0)  # noqa: E731
        noise = jax.tree.map(lambda s: pick(s, 1), one.noise)
        return {"counts": at(one.counts), "noise": noise, "upper": at(one.upper)}

    first, *more = map(safely, tables.measurements)
    also = tuple(with_fields(x, **m) for x, m in zip(tables.also, more, strict=True))
    groups = tuple(
        with_fields(g, total=pick(g.total, 0), noise=jax.tree.map(lambda s: pick(s, 1), g.noise))
        for g in tables.groups
    )
    N, totals = tables.n_records, tables.class_totals
    clean = with_fields(
        tables,
        **first,
        also=also,
        n_records=None if N is None else pick(N, 0),
        class_totals=None if totals is None else pick(totals, jnp.nan),
        groups=groups,
    )
    prior_good, log_n = prior.is_valid(tables.real), prior.n_records
    return clean, with_fields(
        prior,
        class_=jnp.where(prior_good, prior.class_, 1),
        feature=jnp.where(prior_good & tables.real, prior.feature, 1),
        n_records=None if log_n is None else jnp.where(prior_good, log_n, 0),
    )
