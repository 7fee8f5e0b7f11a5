"""`plan`: from N, the domain and a prior to what budgets will buy."""

import itertools
import numbers
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from jaxprivnb import validate
from jaxprivnb.extras import progress_bar
from jaxprivnb.noise import Neighbours, check_neighbours
from jaxprivnb.parallel import cores
from jaxprivnb.planning.expect import Expected, Mechanism, ceiling, expect
from jaxprivnb.planning.simulated import Concentrations, draw_data
from jaxprivnb.planning.table import ALLOCATIONS, NOISES, QUANTITIES, Plan, Row, table_weights
from jaxprivnb.privacy.budget import request_budget
from jaxprivnb.privacy.conversion import rho_from_epsilon
from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.privacy.mechanism import calibrate
from jaxprivnb.tables import Prior, mask_from_categories

_CELLS = 1_500
"""Cells that simulated datasets are to have together, about."""
_REPLICATES = (5, 64)
"""Fewest and most datasets for it."""


class _Way(NamedTuple):
    """One way of spending one budget."""

    epsilon: float
    noise: str
    rho: float | None
    class_table: bool
    allocation: str
    mechanism: Mechanism


def plan(
    *,
    n_records: int,
    epsilon_total: Any,
    n_classes: int | None = None,
    n_categories: Sequence[int] | None = None,
    domain: Any = None,
    delta: float = 1e-6,
    prior: Prior | float | None = None,
    neighbours: Neighbours = "replace",
    contributions: int = 1,
    level: float = 0.95,
    replicates: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Plan:
    """What releases at the given budgets are expected to say; reads no data.

    Datasets are simulated from the prior and released with the noise that `release` would use, of
    the same scale; the exact posterior of each is then asked, by sums that are coarser than
    `fit_exact`'s where noise is wide. Compared are, at every epsilon, discrete Laplace noise (pure
    differential privacy, delta 0) and discrete Gaussian (the largest rho whose epsilon at `delta`
    is no larger); releases with and without the class's own table; and budgets shared equally, in
    proportion to the square root of a table's number of categories, and to that number.

    Every expectation is over parameters from the prior, records from the parameters and noise:

    - width: of the equal-tailed interval of P(Y=i), of P(X_k=j | Y=i) and of the true counts
      n_ikj; the mean over all of them, but for features with one category;
    - error: of the posterior mean, |mean - truth|, the mean over the same;
    - found: the share of new records for which the release names the class that the true
      parameters make most likely, given all features;
    - accuracy: the share of new records whose class is the one that the release names.

    The same arguments and seed give the same numbers; all rows share their simulated datasets, so
    rows differ less by chance than their standard errors say.

    Args:
        n_records: N, about how many records there will be.
        epsilon_total: of all tables together; one number, or several to compare.
        n_classes: I.
        n_categories: J_k for each feature.
        domain: instead of both, a `Domain`, or a `Release` that has one.
        delta: at which Gaussian noise keeps epsilon; far below 1 / N.
        prior: where parameters are drawn from, and what is assumed of them: a `Prior` of shapes
            `[I]` and `[I, K, J]`, or one concentration for all; None is 1, uniform.
        neighbours: as in `release`: whose promise it is. With "add-remove" N is not known to who
            reads the release.
        contributions: as in `release`.
        level: of the intervals.
        replicates: simulated datasets; None: as many as make means over cells precise.
        seed: of the simulation.
        progress: show a bar; None means where a person is watching (needs rich).
    """
    N = validate.whole_number("n_records", n_records, at_least=1)
    epsilons = _epsilons(epsilon_total)
    known = _domain(domain, n_classes, n_categories)
    delta = validate.real_number("delta", delta, above=0, below=1)
    level = validate.real_number("level", level, above=0, below=1)
    check_neighbours(neighbours, contributions)
    seed = validate.whole_number("seed", seed)
    concentrations = _concentrations(prior, known)
    if replicates is None:
        cells = len(known.class_) * sum(known.n_categories)
        replicates = int(np.clip(-(-_CELLS // cells), *_REPLICATES))
    replicates = validate.whole_number("replicates", replicates, at_least=2)
    ways = _ways(known, epsilons, delta, neighbours, contributions)
    data = draw_data(np.random.default_rng([seed, 0]), concentrations, N, replicates)

    def found(way: _Way) -> Expected:
        # Of one seed: releases of the same data differ as little as their noise does.
        rng = np.random.default_rng([seed, 1])
        return expect(data, way.mechanism, concentrations, N, level, rng)

    with progress_bar(progress, len(ways), "plan") as advance, ThreadPoolExecutor(cores()) as pool:
        rows = []
        for way, expected in zip(ways, pool.map(found, ways), strict=True):
            rows.append(_row(way, expected))
            advance(1)
    right = float(ceiling(data).mean())
    return Plan(
        tuple(rows), N, known, delta, level, right, neighbours, contributions, replicates, seed
    )


def _row(way: _Way, expected: Expected) -> Row:
    each = {name: getattr(expected, name) for name in QUANTITIES}
    about: dict[str, Any] = {
        "epsilon_total": way.epsilon,
        "noise": way.noise,
        "rho_total": way.rho,
        "class_table": way.class_table,
        "allocation": way.allocation,
        "scale_least": min(way.mechanism.scales),
        "scale_most": max(way.mechanism.scales),
    }
    se = tuple(float(x.std(ddof=1) / np.sqrt(len(x))) for x in each.values())
    about |= {name: float(x.mean()) for name, x in each.items()}
    return Row(**about, se=se)


def _ways(
    domain: Domain,
    epsilons: Sequence[float],
    delta: float,
    neighbours: Neighbours,
    contributions: int,
) -> list[_Way]:
    """Every way, with the noise that `release` would use."""
    names = tuple(f.name for f in domain.features)
    # Where all tables have one size, all allocations are one.
    allocations = list(ALLOCATIONS) if len({*domain.n_categories}) > 1 else ["equal"]
    ways = []
    for epsilon, noise in itertools.product(epsilons, NOISES):
        rho = rho_from_epsilon(epsilon, delta) if noise == "gaussian" else None
        budget = {"epsilon_total": epsilon} if rho is None else {"rho_total": rho}
        for class_table, allocation in itertools.product((False, True), allocations):
            request = request_budget(
                names,
                domain.class_.name,
                **budget,
                weights=table_weights(domain, class_table, allocation),
                class_table=class_table,
                neighbours=neighbours,
                contributions=contributions,
            )
            scales = calibrate(request).scales
            mechanism = Mechanism(request.measure, scales, neighbours == "replace")
            ways.append(_Way(epsilon, noise, rho, class_table, allocation, mechanism))
    return ways


def _epsilons(epsilon_total: Any) -> tuple[float, ...]:
    several = isinstance(epsilon_total, Sequence | np.ndarray)
    if several and (isinstance(epsilon_total, str) or len(epsilon_total) == 0):
        raise TypeError(
            f"epsilon_total must be a number or several, got {validate.describe(epsilon_total)}"
        )
    each = list(epsilon_total) if several else [epsilon_total]
    return tuple(dict.fromkeys(validate.real_number("epsilon_total", e, above=0) for e in each))


def _domain(domain: Any, n_classes: Any, n_categories: Any) -> Domain:
    if domain is None:
        if n_classes is None or n_categories is None:
            raise TypeError("give n_classes and n_categories, or domain")
        I = validate.whole_number("n_classes", n_classes, at_least=1)
        sizes = validate.n_categories(n_categories)
        features = tuple(Column(f"x{k}", tuple(range(J))) for k, J in enumerate(sizes))
        return Domain(Column("class", tuple(range(I))), features)
    if n_classes is not None or n_categories is not None:
        raise TypeError("give domain, or n_classes and n_categories, not both")
    found = getattr(domain, "domain", domain)
    if not isinstance(found, Domain):
        raise TypeError(f"domain must be a Domain or a Release, got {validate.describe(domain)}")
    if not found.features:
        raise ValueError("domain must have at least one feature")
    return found


def _concentrations(prior: Any, domain: Domain) -> Concentrations:
    I, K, J = domain.shape
    if prior is None or not isinstance(prior, Prior):
        a = 1.0 if prior is None else prior
        if isinstance(a, bool) or not isinstance(a, numbers.Real):
            raise TypeError(
                "prior must be a jaxprivnb.Prior, one concentration or None, "
                f"got {validate.describe(prior)}"
            )
        a = validate.real_number("prior", a, above=0)
        return Concentrations(np.full(I, a), tuple(np.full((I, j), a) for j in domain.n_categories))
    mask = mask_from_categories(domain.n_categories)
    validate.concentration("prior.class_", prior.class_, (I,))
    validate.concentration("prior.feature", prior.feature, (I, K, J), mask)
    feature = np.asarray(prior.feature, float)
    sizes = enumerate(domain.n_categories)
    return Concentrations(
        np.asarray(prior.class_, float), tuple(feature[:, k, :j] for k, j in sizes)
    )
