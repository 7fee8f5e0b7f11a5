"""jaxprivnb: `fit_many` for batches, `fit_exact`, `fit_vb`, `fit_naive` alone; float64."""

import functools

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

from peers.protocol import LEVEL, Answer, Method, Releases, main  # noqa: E402

import jaxprivnb as pnb  # noqa: E402

ALONE = {"exact": pnb.fit_exact, "vb": pnb.fit_vb, "naive": pnb.fit_naive}


def means(posterior) -> tuple[np.ndarray, np.ndarray]:
    """Means as NumPy arrays; raises if a fit failed."""
    if np.any(np.asarray(posterior.status) != 0):
        raise RuntimeError(f"statuses {np.unique(np.asarray(posterior.status))}: a fit failed")
    return np.asarray(posterior.class_mean), np.asarray(posterior.feature_mean)


def fit(releases: Releases, method: str, intervals: bool = False) -> Answer:
    """`fit_many`, with 95% intervals if asked for."""
    tables = pnb.NoisyTables(releases.counts, releases.n_records, pnb.Laplace(releases.scale))
    posterior = pnb.fit_many(tables, method, progress=False)
    found = means(posterior)
    if not intervals:
        return Answer(*found)
    return Answer(
        *found,
        np.stack(posterior.class_interval(LEVEL)),
        np.stack(posterior.feature_interval(LEVEL)),
    )


def alone(releases: Releases, method: str) -> Answer:
    """The call for one dataset."""
    tables = pnb.NoisyTables(
        releases.counts[0], releases.n_records[0], pnb.Laplace(releases.scale[0])
    )
    return Answer(*(x[None] for x in means(ALONE[method](tables))))


METHODS = {
    f"jaxprivnb {method}": Method(
        functools.partial(fit, method=method),
        alone=functools.partial(alone, method=method),
        intervals=functools.partial(fit, method=method, intervals=True),
        check=known,
        packages=("jaxprivnb", "jax", "jaxlib", "numpy"),
    )
    for method, known in (
        ("exact", {"noisy": 1e-9, "smoothed": 1e-6, "gentle": 3e-3}),
        ("vb", {"smoothed": 2e-3}),
        ("naive", {"smoothed": 1e-6}),
    )
}

if __name__ == "__main__":
    main(METHODS)
