"""Sphinx set-up. The build reads the repository and nothing else: it needs no network."""

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

from jaxprivnb import __version__  # noqa: E402

project = "jaxprivnb"
author = "The jaxprivnb developers"
copyright = f"2026, {author}"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "commands",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"jaxprivnb {__version__}"
html_static_path: list[str] = []

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# Docstrings write code in single backticks, and formulas as plain text.
default_role = "literal"
highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False

nitpicky = True
# Types of other libraries, whose inventories a build without network cannot read.
nitpick_ignore_regex = [
    ("py:.*", r"(jax|jaxlib|numpy|np|optax|os|collections|typing|pathlib|argparse|enum)\..*"),
    ("py:.*", r"(Any|Array|Callable|Device|PathLike|Self|Sequence|optional|ndarray)"),
    ("py:.*", r"(bool|float|int|str|tuple|dict|list|object|None|ValueError|UserWarning)"),
]

_CODE = re.compile(r"(`+[^`]*`+)")
_SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring in plain text.

    Formulas use *, | and a trailing _ for what they are in mathematics, and an indented paragraph
    is a formula, to be set as it stands.
    """
    if lines and lines[0].startswith("Alias for field number"):  # an undocumented field
        lines[:] = []
    in_section, out = False, []
    formula = False
    for number, line in enumerate(lines):
        if re.fullmatch(r"(Args|Returns|Raises):", line):
            in_section = True
        elif line and not line.startswith(" "):
            in_section = False
        indented = line.startswith("    ") and not in_section
        if indented and not formula and not lines[number - 1].strip():
            formula = True
            out += ["::", ""]
        elif line.strip() and not line.startswith("    "):
            formula = False
        out.append(line if formula else _escaped(line))
    if what in ("attribute", "data", "property"):
        out[:0] = ["..", ""]  # an empty comment, or napoleon takes words before a colon for a type
    lines[:] = out


def _escaped(line: str) -> str:
    """The line with what reStructuredText would read as markup escaped, outside of code."""
    parts = _CODE.split(line)
    return "".join(p if p.startswith("`") else _SPECIAL.sub(r"\\\1", p) for p in parts)


def setup(app: Any) -> None:
    """Docstrings are made ready before napoleon reads them (priority 500)."""
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)
