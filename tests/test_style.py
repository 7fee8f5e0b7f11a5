"""Looks of methods."""

from jaxprivnb.methods import METHODS
from jaxprivnb.style import MORE, looks


def test_a_method_keeps_its_look_and_a_second_label_gets_another():
    found = looks([("naive", "naive"), ("vb", "vb"), ("vb from uniform", "vb"), ("mine", "mine")])
    assert [s.name for s in found] == ["naive", "variational (VB)", "vb from uniform", "mine"]
    assert [s.color for s in found] == [
        METHODS["naive"].look.color,
        METHODS["vb"].look.color,
        MORE[0].color,
        MORE[1].color,
    ]


def test_looks_differ_in_colour_marker_and_dash():
    own = [method.look for method in METHODS.values()]
    for part in ("color", "marker", "dash", "name"):
        assert len({getattr(s, part) for s in own}) == len(own)
    assert len(looks((str(n), "vb") for n in range(12))) == 12
