"""Who takes part: adapter, environment, limits, look, and what each can do that we cannot."""

from dataclasses import dataclass, field

OURS = "jaxprivnb exact"
DEFAULT = (60.0, 10**9, 1000)


@dataclass(frozen=True)
class Peer:
    """One method of one adapter, and the limits it runs under."""

    name: str
    adapter: str
    environment: str
    color: str
    marker: str
    limits: dict[str, tuple[float, int, int] | None] = field(default_factory=dict)
    """`{design: (seconds, replicates of a cell, releases in a batch)}`; None: not run there."""
    chain: tuple[int, int] | None = None
    """(warm-up, kept) steps of a sampler."""
    why_not: dict[str, str] = field(default_factory=dict)
    """Why a design is left out."""
    extra_sources: tuple[str, ...] = ()
    """Further files in bench/ that its result depends on."""

    def limit(self, design: str) -> tuple[float, int, int] | None:
        """(seconds, replicates, releases in a batch) for a design."""
        return self.limits.get(design, DEFAULT)


SLOW = "its time a fit is {} there"
PEERS = (
    Peer(
        OURS, "ours", "jaxprivnb", "#009E73", "D",
        # All are compared with it, and intervals of large tables take seconds each.
        {"paper": (600, 10**9, 1000), "ju": (600, 10**9, 1000), "large": (900, 10**9, 16)},
    ),
    Peer("jaxprivnb vb", "ours", "jaxprivnb", "#0072B2", "o"),
    Peer("jaxprivnb naive", "ours", "jaxprivnb", "#D55E00", "s"),
    Peer("private-pgm l1", "pgm", "private-pgm", "#CC79A7", "v"),
    Peer("private-pgm l2", "pgm", "private-pgm", "#E69F00", "P"),
    Peer(
        "NumPyro NUTS", "relaxed", "numpyro", "#56B4E9", "X",
        {"paper": (300, 10, 36), "ju": (150, 20, 10), "large": (240, 2, 1)}, (500, 1000),
    ),
    Peer(
        "NumPyro SVI", "relaxed", "numpyro", "#8C6BB1", "<",
        {"paper": (120, 30, 250), "ju": (90, 50, 250), "large": (120, 10, 15)},
    ),
    Peer(
        "data augmentation", "augmentation", "numpyro", "#A6761D", ">",
        {"paper": (200, 10, 72), "ju": (120, 20, 50), "large": None}, (1000, 3000),
        {"large": "a sweep is N = 10,000 steps in sequence, a chain 40 million"}, (
            "peers/adapters/relaxed.py",
        ),
    ),
    Peer("CategoricalNB", "categorical", "scikit-learn", "#F0E442", "*", {"paper": (60, 100, 1)}),
    Peer(
        "GaussianNB", "gaussian", "diffprivlib", "#999999", "h",
        {"paper": (60, 100, 1), "ju": None, "large": None}, None,
        dict.fromkeys(("ju", "large"), "it models a feature by a mean: two categories only"),
    ),
    Peer(
        "paper's loop", "loop", "scipy", "#000000", "+",
        {"paper": (150, 2, 1), "ju": (60, 2, 1), "large": (90, 1, 1)},
        extra_sources=("paper_loop.py",),
    ),
)  # fmt: skip

LABELS = {
    "jaxprivnb exact": "jaxprivnb `exact`",
    "jaxprivnb vb": "jaxprivnb `vb` (the paper's)",
    "jaxprivnb naive": "jaxprivnb `naive`",
    "private-pgm l1": "private-pgm, l1 loss",
    "private-pgm l2": "private-pgm, l2 loss",
    "NumPyro NUTS": "NumPyro NUTS, counts relaxed",
    "NumPyro SVI": "NumPyro SVI, counts relaxed",
    "data augmentation": "data augmentation (Ju et al.)",
    "CategoricalNB": "scikit-learn CategoricalNB, clipped counts",
    "GaussianNB": "diffprivlib GaussianNB, from raw data",
    "paper's loop": "the paper's loop in SciPy",
}
CAN = (
    (
        "private-pgm",
        "any set of overlapping marginals and any decomposable graph, not only class-by-feature "
        "tables; linear queries of a table; an unknown number of records; synthetic data; "
        "mechanisms that choose what to measure (AIM, MST)",
    ),
    (
        "NumPyro",
        "any model that can be written down: hierarchies, covariates, priors beyond Dirichlet, "
        "unknown N; model criticism and comparison tools that take its draws",
    ),
    (
        "data augmentation (Ju et al.; the R package dapper)",
        "any model with a sampler for complete data and any mechanism with a density, "
        "such as regression; the confidential records themselves are imputed",
    ),
    (
        "scikit-learn",
        "every other classifier; records that arrive in parts (`partial_fit`); nothing to compile "
        "and far less memory",
    ),
    (
        "diffprivlib",
        "continuous features; private regression, forests, k-means and PCA under one accountant",
    ),
    ("the paper's loop in SciPy", "100 lines to read, with NumPy and SciPy and nothing to compile"),
)
"""(peer, what it can do that jaxprivnb cannot)."""
