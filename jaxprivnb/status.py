"""What happened to a replicate: failure is data."""

import enum


class Status(enum.IntEnum):
    """The code in every posterior's `status`; 0 is success.

    Codes are ordered by severity, so the worst of several is their maximum. Each has a `sentence`
    that says what it means.
    """

    sentence: str

    def __new__(cls, code: int, sentence: str = "") -> "Status":
        """A code, and what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.sentence = member.__doc__ = sentence
        return member

    SUCCESS = 0, "Converged, and every check passed."
    BOUNDARY = (
        1,
        "The `mm` solver landed on the boundary of a simplex, where the paper's next iterate is "
        "undefined; the step was shortened and the ascent went on (see `jaxprivnb.simplex.mm`).",
    )
    MAX_ITERATIONS = 2, "The iteration cap was reached first; the result is the best point found."
    NOT_MONOTONE = 3, "The bound fell by more than rounding error; see `max_decrease`."
    LOST_MASS = 4, "A window left out more posterior mass than the tolerance; see `lost_mass`."
    NON_FINITE = 5, "A NaN or an infinity appeared; the result is the last finite point, if any."
    BAD_INPUT = 6, "The input is invalid: NaN counts, scale <= 0, N < 0 or prior <= 0."
    FAILED = 7, "An estimator from outside raised an error, or gave no estimates; see its message."
