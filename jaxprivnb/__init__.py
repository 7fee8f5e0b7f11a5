"""Valid Bayesian inference from differentially private count tables.

Names are imported on first use, so that `import jaxprivnb` and the command line's help stay fast.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from jaxprivnb._version import __version__

if TYPE_CHECKING:
    from jaxprivnb import plots as plots
    from jaxprivnb.baselines import fit_bayes as fit_bayes
    from jaxprivnb.baselines import fit_naive as fit_naive
    from jaxprivnb.estimator.classifier import PrivateNaiveBayes as PrivateNaiveBayes
    from jaxprivnb.exact.compare import compare_with_vb as compare_with_vb
    from jaxprivnb.exact.fit import fit_exact as fit_exact
    from jaxprivnb.exact.posterior import ExactPosterior as ExactPosterior
    from jaxprivnb.exact.prior import fit_prior as fit_prior
    from jaxprivnb.many.fit import fit_many as fit_many
    from jaxprivnb.noise import Gaussian as Gaussian
    from jaxprivnb.noise import Geometric as Geometric
    from jaxprivnb.noise import Laplace as Laplace
    from jaxprivnb.privacy.domain import PrivacyWarning as PrivacyWarning
    from jaxprivnb.privacy.file import load_release as load_release
    from jaxprivnb.privacy.ledger import BudgetExceededError as BudgetExceededError
    from jaxprivnb.privacy.ledger import PrivacyLedger as PrivacyLedger
    from jaxprivnb.privacy.publish import release as release
    from jaxprivnb.privacy.record import Release as Release
    from jaxprivnb.simulation import Simulation as Simulation
    from jaxprivnb.simulation import simulate as simulate
    from jaxprivnb.status import Status as Status
    from jaxprivnb.study.load import load_study as load_study
    from jaxprivnb.study.run import run_study as run_study
    from jaxprivnb.tables import NoisyTables as NoisyTables
    from jaxprivnb.tables import Prior as Prior
    from jaxprivnb.variational.fit import VariationalPosterior as VariationalPosterior
    from jaxprivnb.variational.fit import fit_vb as fit_vb
    from jaxprivnb.variational.trace import trace_vb as trace_vb

_HOME = {
    "BudgetExceededError": "privacy.ledger",
    "ExactPosterior": "exact.posterior",
    "Gaussian": "noise",
    "Geometric": "noise",
    "Laplace": "noise",
    "NoisyTables": "tables",
    "Prior": "tables",
    "PrivacyLedger": "privacy.ledger",
    "PrivacyWarning": "privacy.domain",
    "Release": "privacy.record",
    "Simulation": "simulation",
    "Status": "status",
    "VariationalPosterior": "variational.fit",
    "compare_with_vb": "exact.compare",
    "fit_bayes": "baselines",
    "fit_exact": "exact.fit",
    "fit_many": "many.fit",
    "fit_naive": "baselines",
    "fit_prior": "exact.prior",
    "fit_vb": "variational.fit",
    "load_release": "privacy.file",
    "load_study": "study.load",
    "release": "privacy.publish",
    "run_study": "study.run",
    "simulate": "simulation",
    "trace_vb": "variational.trace",
}
_MODULES = ("plots",)

__all__ = ["__version__", *sorted((*_HOME, *_MODULES))]

# Importing it needs scikit-learn: found by name, but no part of `from jaxprivnb import *`.
_HOME["PrivateNaiveBayes"] = "estimator.classifier"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"jaxprivnb.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'jaxprivnb' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jaxprivnb.{_HOME[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    names = sorted((*_HOME, *_MODULES))
    if importlib.util.find_spec("sklearn") is None:  # `help(jaxprivnb)` looks at every name
        names.remove("PrivateNaiveBayes")
    return ["__version__", *names]
