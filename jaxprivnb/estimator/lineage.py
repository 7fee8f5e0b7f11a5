"""Which estimators have spent a budget already, through cloning and pickling.

Cross-validation and grid search never fit the estimator they are given but clones of it, so a
counter on the estimator would stay at nought. Clones share a lineage instead: scikit-learn hands
cloning to the estimator (`__sklearn_clone__`), which passes its lineage on.

Work sent to another process takes a copy of the lineage along, which hears nothing more of the
others. But it knows how many clones had been made when it left, and more than one of them in
other processes is a search or a cross-validation.
"""

import threading
from typing import Any

_LOCK = threading.Lock()


class Lineage:
    """Fits of one estimator and all its clones."""

    def __init__(self) -> None:
        self.fits = 0
        """Budgets that are known here to have been spent."""
        self.clones = 0
        """Clones that are known here."""
        self._travelled = False

    def add_clone(self) -> "Lineage":
        """The lineage, for a clone."""
        with _LOCK:
            self.clones += 1
        return self

    def add_fit(self) -> None:
        """A budget has been spent."""
        with _LOCK:
            self.fits += 1

    def spends_again(self) -> bool:
        """Whether a fit now would, as far as is known here, not be the first."""
        return self.fits > 0 or (self._travelled and self.clones > 1)

    def __deepcopy__(self, memo: Any) -> "Lineage":
        return self.add_clone()

    def __getstate__(self) -> dict[str, Any]:
        return {"fits": self.fits, "clones": self.clones}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _travelled=True)
