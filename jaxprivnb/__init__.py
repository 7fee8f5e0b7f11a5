"""Valid Bayesian inference from differentially private count tables.

Names are imported on first use, so that `import jaxprivnb` and the command line's help stay fast.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from jaxprivnb._version import __version__
from jaxprivnb.methods import METHODS, Look, Method, fit_function, register

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
    from jaxprivnb.measurement import Group as Group
    from jaxprivnb.measurement import Measurement as Measurement
    from jaxprivnb.noise import Gaussian as Gaussian
    from jaxprivnb.noise import Geometric as Geometric
    from jaxprivnb.noise import Laplace as Laplace
    from jaxprivnb.planning.plan import plan as plan
    from jaxprivnb.planning.table import Plan as Plan
    from jaxprivnb.privacy.domain import PrivacyWarning as PrivacyWarning
    from jaxprivnb.privacy.file import load_release as load_release
    from jaxprivnb.privacy.ledger import BudgetExceededError as BudgetExceededError
    from jaxprivnb.privacy.ledger import PrivacyLedger as PrivacyLedger
    from jaxprivnb.privacy.publish import release as release
    from jaxprivnb.privacy.record import Release as Release
    from jaxprivnb.published import combine as combine
    from jaxprivnb.published import from_tables as from_tables
    from jaxprivnb.published import known as known
    from jaxprivnb.published import load_tables as load_tables
    from jaxprivnb.published import processed as processed
    from jaxprivnb.report.release import write_report as write_report
    from jaxprivnb.report.synthetic import combine_synthetic as combine_synthetic
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
    "Group": "measurement",
    "Laplace": "noise",
    "Measurement": "measurement",
    "NoisyTables": "tables",
    "Plan": "planning.table",
    "Prior": "tables",
    "PrivacyLedger": "privacy.ledger",
    "PrivacyWarning": "privacy.domain",
    "Release": "privacy.record",
    "Simulation": "simulation",
    "Status": "status",
    "VariationalPosterior": "variational.fit",
    "combine": "published",
    "combine_synthetic": "report.synthetic",
    "compare_with_vb": "exact.compare",
    "fit_many": "many.fit",
    "fit_prior": "exact.prior",
    "from_tables": "published",
    "known": "published",
    "load_release": "privacy.file",
    "load_study": "study.load",
    "load_tables": "published",
    "plan": "planning.plan",
    "processed": "published",
    "release": "privacy.publish",
    "run_study": "study.run",
    "simulate": "simulation",
    "trace_vb": "variational.trace",
    "write_report": "report.release",
}
_MODULES = ("plots",)
_FITS = {f"fit_{name}": name for name in METHODS}

__all__ = ["Look", "Method", "__version__", *sorted((*_HOME, *_MODULES, *_FITS)), "register"]

# Importing it needs scikit-learn: found by name, but no part of `from jaxprivnb import *`.
_HOME["PrivateNaiveBayes"] = "estimator.classifier"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"jaxprivnb.{name}")
    if name in _FITS:
        return fit_function(_FITS[name])
    if name not in _HOME:
        raise AttributeError(f"module 'jaxprivnb' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jaxprivnb.{_HOME[name]}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    without = {"PrivateNaiveBayes"} if importlib.util.find_spec("sklearn") is None else set()
    return sorted({*__all__, *_HOME} - without)  # `help(jaxprivnb)` looks at every name
