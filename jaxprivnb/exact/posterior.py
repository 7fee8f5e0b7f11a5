"""The posterior that `fit_exact` returns.

It keeps the release and the class counts' distribution; what costs more (marginals, draws, the
predictive) is computed from them when asked for, on the counts that were found to carry mass.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxprivnb import validate
from jaxprivnb._pytree import aside, pytree_dataclass, set_fields, static
from jaxprivnb.exact import draws, mixtures, predict
from jaxprivnb.exact.aim import Aims, look
from jaxprivnb.exact.classes import weighted
from jaxprivnb.exact.dataset import dataset
from jaxprivnb.exact.mixtures import Extent
from jaxprivnb.exact.moments import Moments
from jaxprivnb.exact.tree import Pass, upward
from jaxprivnb.exact.windows import bucket, cut
from jaxprivnb.marginals import Marginal
from jaxprivnb.parallel import in_threads, map_in_chunks
from jaxprivnb.posterior import Posterior, _checked, _replicate_keys
from jaxprivnb.tables import NoisyTables, Prior

_CHUNK = 4_096
"""Numbers an array should hold while mixtures are raised, about."""
_MESSAGES = 65_536
"""Numbers that the messages of datasets worked on side by side should hold, about."""
_LEFT_OUT = 1e-12
"""Of the mass of a count, on each side, where windows are cut before anything is asked of them."""


@pytree_dataclass
class ExactPosterior(Posterior):
    """The exact posterior of P(Y) and P(X_k | Y) given noisy tables."""

    tables: NoisyTables
    """The release it was fitted to."""
    prior: Prior
    """The concentrations it was fitted with."""
    start: jax.Array
    """First counts of the classes' windows, `[..., I]`."""
    likely: Aims
    """The middle of the class counts, and how far they reach."""
    log_evidence: jax.Array
    """log P(m), `[...]`."""
    lost_mass: jax.Array
    """Bound on the posterior mass left out by windows or wrong by rounding, `[...]`."""
    class_count_pmf: jax.Array
    """P(n_i = n | m), `[..., I, W]`, for n = class_count_offset + (0, ..., W - 1)."""
    moments: Moments
    """Means and standard deviations."""
    path: Any = static()
    """How it was computed."""
    n_records_pmf: jax.Array | None = dataclasses.field(default=None, kw_only=True)
    """P(N | m) for N = n_records_offset + (0, 1, ...), `[..., S]`; None if N is known."""
    prior_status: Any = dataclasses.field(default=None, kw_only=True)
    """`Status` code of the search for the prior, int32 `[...]`: 0 where it was learned from the
    release, else the prior is uniform; None if it was given."""
    found: Any = aside(default=None)
    """What was computed when asked for, to be asked again."""

    headline = ("log_evidence", "lost_mass")

    def __getstate__(self) -> dict[str, Any]:
        """What is kept to be asked again is many times the posterior: it is not pickled."""
        return self.__dict__ | {"found": None}

    @property
    def concentrations(self) -> tuple[jax.Array, jax.Array] | None:
        """The concentrations of P(Y), `[...]`, and of every P(X_k | Y=i), `[..., K]`, that were
        learned; None if the prior was given.
        """
        if self.prior_status is None:
            return None
        return self.prior.class_[..., 0], self.prior.feature[..., 0, :, 0]

    @property
    def class_count_offset(self) -> jax.Array:
        """The first n of `class_count_pmf`, int32 `[..., I]`."""
        return self.start.astype(jnp.int32)

    @property
    def n_records_offset(self) -> jax.Array:
        """The first N of `n_records_pmf`, int32 `[...]`."""
        return self.start.sum(-1).astype(jnp.int32)

    @property
    def n_records_mean(self) -> jax.Array:
        """E[N | m], `[...]`; N itself where it is known."""
        if self.n_records_pmf is None:
            return self.tables.n_records
        n = jnp.arange(self.n_records_pmf.shape[-1], dtype=self.start.dtype)
        return self.start.sum(-1) + (self.n_records_pmf * n).sum(-1)

    def n_records_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed interval of N: (lower, upper), int32 `[...]`; N twice where it is known."""
        level = _checked(level)
        if self.n_records_pmf is None:
            N = self.tables.n_records.astype(jnp.int32)
            return N, N
        return _count_interval(self.n_records_pmf, self.n_records_offset, level)

    def class_count_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """Equal-tailed intervals of the true class counts n_i: (lower, upper), int32 `[..., I]`.

        The smallest set of neighbouring whole numbers with at most (1 - level) / 2 on either side.
        """
        return _count_interval(self.class_count_pmf, self.class_count_offset, _checked(level))

    def count_interval(self, level: float = 0.95) -> tuple[jax.Array, jax.Array]:
        """The same for the true counts n_ikj: (lower, upper), int32 `[..., I, K, J]`.

        Masked cells have (0, 0).
        """
        return _count_interval(self.count_pmf(), self.count_offset, _checked(level))

    @property
    def class_count_mean(self) -> jax.Array:
        """E[n_i | m], `[..., I]`."""
        n = jnp.arange(self.class_count_pmf.shape[-1], dtype=self.start.dtype)
        return self.start + (self.class_count_pmf * n).sum(-1)

    @property
    def count_mean(self) -> jax.Array:
        """E[n_ikj | m], `[..., I, K, J]`; masked cells are 0."""
        law = self.count_pmf()
        n = jnp.arange(law.shape[-1], dtype=law.dtype)
        return self.count_offset.astype(law.dtype) + (law * n).sum(-1) / law.sum(-1)

    @property
    def count_offset(self) -> jax.Array:
        """The first count of `count_pmf`, int32 `[..., I, K, J]`."""
        return self._once("count_laws", lambda: _on_every_core(_count_laws, self))[1]

    @property
    def class_mean(self) -> jax.Array:
        """E[P(Y=i) | m], `[..., I]`."""
        return self.moments.class_mean

    @property
    def feature_mean(self) -> jax.Array:
        """E[P(X_k=j | Y=i) | m], `[..., I, K, J]`; masked cells are 0."""
        return self.moments.feature_mean

    @property
    def class_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I]`."""
        return self.moments.class_sd

    @property
    def feature_sd(self) -> jax.Array:
        """Posterior standard deviations, `[..., I, K, J]`."""
        return self.moments.feature_sd

    def count_pmf(self) -> jax.Array:
        """P(n_ikj = l | m), `[..., I, K, J, W]`, for l = count_offset + (0, ..., W - 1)."""
        return self._once("count_laws", lambda: _on_every_core(_count_laws, self))[0]

    def class_marginal(self) -> Marginal:
        """Each P(Y=i), a mixture of Betas over the class's count, `[..., I]`."""
        first, lengths = self._class_extent()
        made = partial(_class_marginal, first=first, lengths=lengths)
        return self._once("class_marginal", lambda: _on_every_core(made, self))

    def feature_marginal(self) -> Marginal:
        """Each P(X_k=j | Y=i), a mixture of Betas over the cell's count, `[..., I, K, J]`.

        Of one dataset with more records than a whole window holds, on the counts with all but 1e-12
        of the mass on each side (1e-7 in float32): tails below that are not to be relied on.
        """
        return self._once("feature_marginal", lambda: _feature_marginal(self))

    def sample_tables(self, key: jax.Array, n: int) -> jax.Array:
        """n i.i.d. draws of the integer tables given m, int32 `[..., n, I, K, J]`."""
        return self._draw(key, n).counts

    def sample(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """n i.i.d. draws: (P(Y) `[..., n, I]`, P(X|Y) `[..., n, I, K, J]`).

        The tables behind them are those of `sample_tables` with the same key.
        """
        drawn = self._draw(key, n)
        return drawn.class_probs, drawn.feature_probs

    def _sample_with_sizes(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array, list[int]]:
        """`sample` of one dataset, and N of each draw: the known one, or the records that the
        tables behind the draw hold.
        """
        if self.n_records_pmf is None:
            return *self.sample(key, n), [int(self.tables.n_records)] * n
        drawn = self._draw(key, n)
        sizes = np.asarray(drawn.counts[:, :, 0]).sum((1, 2)).tolist()
        return drawn.class_probs, drawn.feature_probs, sizes

    def _draw(self, key: jax.Array, n: int) -> "draws.Draws":
        n = validate.whole_number("n", n, at_least=0)
        key = validate.random_key("key", key)
        keys = _replicate_keys(key, self.batch_shape)
        return _draw(self, self._pass(), keys, *self._extent(), n)

    def _predict_proba(self, x: jax.Array) -> jax.Array:
        table = self._once("predictive", lambda: _predictive(self, self._pass(), *self._extent()))
        rows = x.reshape(-1, x.shape[-1])
        # Few numbers of rows, so that few programs are compiled.
        more = max(8, 2 ** (max(len(rows), 1) - 1).bit_length()) - len(rows)
        rows = jnp.pad(rows, ((0, more), (0, 0)))
        found = _predict(self, table, rows)[..., : rows.shape[0] - more, :]
        return found.reshape(*found.shape[:-2], *x.shape[:-1], found.shape[-1])

    def _extent(self) -> tuple[Extent | None, tuple[int, int]]:
        """Windows for the questions, (R, T) long: as short as the mass allows for one dataset whose
        numbers are known; None for others, which take all that was computed.
        """
        up = self._pass()
        if up is None or self.path.questions.whole:
            return None, (0, 0)
        return self._once("extent", lambda: _shortened(self, up))

    def _class_extent(self) -> tuple[Any, tuple[int, int]]:
        """The same for the class counts and N, where that is not known: (first ones, lengths)."""
        if self.n_records_pmf is None or self._pass() is None:
            return None, (0, 0)
        start = np.asarray(self.start)
        low, R = _ends(np.asarray(self.class_count_pmf))
        low_total, T = _ends(np.asarray(self.n_records_pmf))
        first = jnp.asarray(start + low), jnp.asarray(start.sum() + low_total, self.start.dtype)
        return first, (bucket(R), bucket(T))

    def _once(self, name: str, make: Any) -> Any:
        """What `make` gives, kept if it is no tracer."""
        if self.found is None:
            set_fields(self, found={})
        if name not in self.found:
            value = make()
            if not all(validate.is_concrete(x) for x in jax.tree.leaves(value)):
                return value
            self.found[name] = value
        return self.found[name]

    def _pass(self) -> Pass | None:
        """All messages of one dataset whose numbers are known, which every question begins with;
        None for others.
        """
        if self.batch_shape or not validate.is_concrete(self.start):
            return None
        return self._once("pass", lambda: _passed(self))


def _passed(self: ExactPosterior) -> Pass:
    """All messages of one dataset, by the programs of its fit."""
    path = self.path.questions
    # After a fit it is known where the posterior is, and a batch's tilts are aimed at each of its
    # datasets, also at those that needed fewer.
    scout = dataclasses.replace(path.scout, everywhere=False)
    aims = look(self.tables, self.prior, scout, self.likely)
    return upward(self.tables, self.prior, path, aims)


def _over_batch(f: Any) -> Any:
    """f(posterior, *arrays with its leading axes) over these, in pieces that fit a core's cache."""

    def vectorised(self: ExactPosterior, *args: Any) -> Any:
        if not self.batch_shape:
            return f(self, *args)
        path = self.path.questions
        numbers = self.start.shape[-1] * sum(path.cells.sizes) * path.length * path.tilts
        each = lambda xs: f(*xs)  # noqa: E731
        pieces = lambda xs: map_in_chunks(each, xs, max(1, _MESSAGES // numbers))  # noqa: E731
        return _on_one_axis(pieces, self.batch_shape, (self, *args))

    return vectorised


def _on_one_axis(f: Any, batch: tuple[int, ...], xs: Any) -> Any:
    """f over one leading axis, for arrays with axes `batch`, which what it gives has as well."""
    found = f(jax.tree.map(lambda y: y.reshape(-1, *y.shape[len(batch) :]), xs))
    return jax.tree.map(lambda y: y.reshape(*batch, *y.shape[1:]), found)


def _on_every_core(f: Any, self: ExactPosterior) -> Any:
    """f of a posterior, a batch on all cores."""
    if not self.batch_shape:
        return f(self)
    return _on_one_axis(partial(in_threads, f), self.batch_shape, self)


def _whole_extent(self: ExactPosterior, up: Any) -> tuple[Extent, tuple[int, int]]:
    """All that was computed."""
    path = self.path.questions
    first = path.place(up.messages, _on_blocks(up))
    R = path.window if path.whole else path.length
    return Extent(up.messages.start, first), (R, path.window)


@jax.jit
@_over_batch
def _count_laws(self: ExactPosterior) -> tuple[jax.Array, jax.Array]:
    path = self.path.questions
    law, first = _laws(path, _passed(self))
    certain = jnp.where(jnp.arange(law.shape[-1]) == 0, 1.0, 0.0).astype(law.dtype)
    table = jnp.moveaxis(path.cells.table(jnp.moveaxis(law, -1, 0)), 0, -1)
    table = jnp.where(self.mask[..., None], table, certain)
    if path.whole:
        table = table[..., : path.window]
    return table, path.cells.table(first).astype(jnp.int32)


@partial(jax.jit, static_argnames="lengths")
def _class_marginal(self: ExactPosterior, first: Any, lengths: tuple[int, int]) -> Marginal:
    @_over_batch
    def made(one: ExactPosterior) -> Marginal:
        data = dataset(one.tables, one.prior)
        if data.log_n is None:
            return mixtures.class_marginals(data, one.class_count_pmf, one.start)
        together = _passed(one).together()
        assert together is not None
        assert one.n_records_pmf is not None
        own, sizes = first, lengths
        if own is None:
            own = one.start, one.start.sum()
            sizes = one.class_count_pmf.shape[-1], one.n_records_pmf.shape[-1]
        return mixtures.class_marginals_over_n(data, together, one.start, own, sizes)

    return made(self)


@jax.jit
def _count_interval(pmf: jax.Array, offset: jax.Array, level: float) -> tuple[jax.Array, jax.Array]:
    """The least l with P(count > l) and with P(count < l) at most (1 - level) / 2, `[...]` each."""
    mass = pmf / pmf.sum(-1, keepdims=True)
    tail = jnp.asarray((1 - level) / 2, pmf.dtype)
    # From its own end, so that a tail far below rounding keeps its digits.
    low = (jnp.cumsum(mass, -1) <= tail).sum(-1)
    high = pmf.shape[-1] - 1 - (jnp.cumsum(mass[..., ::-1], -1) <= tail).sum(-1)
    low, high = (offset + x.astype(jnp.int32) for x in (low, jnp.maximum(high, low)))
    return low, high


def _feature_marginal(self: ExactPosterior) -> Marginal:
    extent, lengths = self._extent()
    if not self.batch_shape:
        return _raised(self, self._pass(), extent, lengths)
    return _on_every_core(_raised_batch, self)


@jax.jit
def _raised_batch(self: ExactPosterior) -> Marginal:
    """For datasets `[R]`."""
    # Raising a mixture passes over it once for every class count: a chunk that stays in the cache
    # is several times faster than the whole batch side by side.
    I, K = self.feature_mean.shape[-3:-1]
    at_once = max(1, _CHUNK // (I * K * self.path.questions.window))
    return map_in_chunks(lambda one: _raised(one, None, None, (0, 0)), self, at_once)


@partial(jax.jit, static_argnames="lengths")
def _raised(
    self: ExactPosterior, up: Pass | None, extent: Extent | None, lengths: tuple[int, int]
) -> Marginal:
    """For one dataset."""
    path = self.path.questions
    if path.whole and path.tilts == 1 and mixtures.is_pairs(path.cells):
        data = dataset(self.tables, self.prior)
        return mixtures.pair_marginals(data, self.class_count_pmf, flat=path.flat)
    up = _passed(self) if up is None else up
    if extent is None:
        extent, lengths = _whole_extent(self, up)
    joint = path.joint(up.messages, up.root.pmf, extent.first_l, extent.first_n, lengths)
    return mixtures.feature_marginals(up.data, path.cells, joint, extent, whole=path.whole)


def _on_blocks(up: Pass) -> jax.Array:
    """P(n_i = n | m) for every block of the class, `[I, K, W]`."""
    return jnp.broadcast_to(up.root.pmf[:, None], up.messages.log_c.shape)


@partial(jax.jit, static_argnames="path")
def _laws(path: Any, up: Pass) -> tuple[jax.Array, jax.Array]:
    """P(n_ikj = l | m) of all real cells, `[I, C, L]`, and the first l, `[I, C]`."""
    value, first = path.laws(up.messages, _on_blocks(up)[None])
    return value[0], first


def _shortened(self: ExactPosterior, up: Pass) -> tuple[Extent, tuple[int, int]]:
    """Windows of supported lengths with all but `_LEFT_OUT` of each law's mass on each side."""
    path, start = self.path.questions, np.asarray(up.messages.start)
    law, first = map(np.asarray, _laws(path, up))
    low_n, T = _ends(np.asarray(up.root.pmf))
    low_l, R = _ends(law)
    extent = Extent(
        jnp.asarray(start + low_n, start.dtype), jnp.asarray(first + low_l, first.dtype)
    )
    return extent, (min(bucket(R), path.length), min(bucket(T), path.window))


def _ends(law: np.ndarray) -> tuple[np.ndarray, int]:
    """First places with mass of laws `[..., S]`, and how many places hold that of any."""
    eps = float(np.finfo(law.dtype).eps)
    # Rounding leaves about its own size everywhere.
    law = np.where(law > 0.64 * eps * law.max(-1, keepdims=True), law, 0)
    upto = np.cumsum(law, axis=-1, dtype=np.float64)
    upto, tail = upto / upto[..., -1:], max(eps, _LEFT_OUT)
    low, high = (upto <= tail).sum(-1), (upto < 1 - tail).sum(-1) + 1
    return low, int((high - low).max())


@partial(jax.jit, static_argnames=("lengths", "n"))
def _draw(
    self: ExactPosterior,
    up: Pass | None,
    keys: jax.Array,
    extent: Extent | None,
    lengths: tuple[int, int],
    n: int,
) -> draws.Draws:
    @_over_batch
    def drawn(one: ExactPosterior, key: jax.Array) -> draws.Draws:
        of, path = _passed(one) if up is None else up, one.path.questions
        own, sizes = (extent, lengths) if extent is not None else _whole_extent(one, of)
        splits = path.splits(of.messages, own.first_l, sizes[0])
        start = of.messages.start
        return draws.draw(
            key, n, of.data, path.cells, of.log_h, start, splits, own.first_l, whole=path.whole
        )

    return drawn(self, keys)


@partial(jax.jit, static_argnames="lengths")
def _predictive(
    self: ExactPosterior, up: Pass | None, extent: Extent | None, lengths: tuple[int, int]
) -> predict.Predictive:
    @_over_batch
    def made(one: ExactPosterior) -> predict.Predictive:
        of, path = _passed(one) if up is None else up, one.path.questions
        pmf, start, means = of.root.pmf, of.messages.start, path.mean_counts(of.messages)
        together = of.together()
        if together is not None:
            N = start.sum() + jnp.arange(together.factor.shape[-1], dtype=start.dtype)
            pmf = weighted(together, 1 / (N + of.data.a_class.sum())[None])[0]
        if extent is not None:
            shift, start = extent.first_n - start, extent.first_n
            pmf = cut(pmf, shift, lengths[1])
            means = cut(means, shift[:, None], lengths[1])
        return predict.predictive(of.data, path.cells, means, pmf, start)

    return made(self)


@jax.jit
def _predict(self: ExactPosterior, table: predict.Predictive, x: jax.Array) -> jax.Array:
    predict_one = lambda one, t: predict.predict_proba(t, self.path.questions.cells, x)  # noqa: E731
    return _over_batch(predict_one)(self, table)
