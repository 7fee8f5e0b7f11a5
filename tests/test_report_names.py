"""Names of cells: the release's, or numbers."""

import numpy as np
import pytest

from jaxprivnb.privacy.domain import Column, Domain
from jaxprivnb.report.names import Names, shown

MASK = np.array([[True, True, False], [True, False, True]])


def test_numbers_where_there_are_no_names():
    domain, cells = Names.of(None, 2, MASK)
    assert domain.class_ == Column("class", (0, 1))
    assert domain.features == (Column("x0", (0, 1)), Column("x1", (0, 2)))
    assert cells == ((0, 1), (0, 2))


def test_the_releases_names_and_no_others():
    given = Domain(Column("y", ("a", "b")), (Column("sex", ("f", "m")),))
    domain, cells = Names.of(given, 2, MASK)  # the second table is the class's
    assert domain is given
    assert cells == ((0, 1),)
    with pytest.raises(ValueError, match="domain has 2 classes"):
        Names.of(given, 3, MASK)
    with pytest.raises(ValueError, match=r"features of \(2,\) categories"):
        Names.of(given, 2, MASK[1:, :1])


def test_what_is_not_printable_is_escaped():
    assert shown("<b>") == "<b>"
    assert shown("\x1b[31m") == r"'\x1b[31m'"
    assert shown(3) == "3"
