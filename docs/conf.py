"""Sphinx set-up. Neither the build nor the site needs a network."""

import os
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
    "sphinx.ext.napoleon",
    "sphinxcontrib.programoutput",
    "mathml",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"jaxprivnb {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# Help is what this interpreter's command line prints, of one width and without colours.
os.environ |= {"COLUMNS": "88", "NO_COLOR": "1"}
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

# Docstrings write code in single backticks, and formulas as plain text.
default_role = "literal"
highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_numpy_docstring = False
napoleon_use_ivar = True

nitpicky = True
# Types of other libraries, whose inventories a build without network cannot read.
nitpick_ignore_regex = [
    ("py:.*", r"(jax|jaxlib|numpy|np|optax|os|collections|typing|pathlib|argparse|enum)\..*"),
    ("py:.*", r"(Any|Array|Callable|Device|PathLike|Self|Sequence|optional|ndarray)"),
    ("py:.*", r"(bool|float|int|str|tuple|dict|list|object|None|ValueError|UserWarning)"),
]

_CODE = re.compile(r"(`+[^`]*`+)")
_BOLD = re.compile(r"(?<!\S)\*\*(?=[`A-Z])(.+?)\*\*", re.DOTALL)
_FIELD = re.compile(r" {4}\*{0,2}\w+:")
_SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def plain_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring in plain text.

    Formulas use *, | and a trailing _ for what they are in mathematics, and an indented paragraph
    is a formula, to be set as it stands. Bold text may hold code, which reStructuredText does not
    allow, so it is set plain.
    """
    if lines and lines[0].startswith("Alias for field number"):  # an undocumented field
        lines[:] = []
    lines[:] = _BOLD.sub(r"\1", "\n".join(lines)).split("\n")
    section, formula, out = "", False, []
    for number, line in enumerate(lines):
        if line and not line.startswith(" "):
            match = re.fullmatch(r"(Args|Attributes|Returns|Raises):", line)
            section = match[1] if match else ""
        indented = line.startswith("    ") and not section
        if indented and not formula and not lines[number - 1].strip():
            formula = True
            out += ["::", ""]
        elif line.strip() and not line.startswith("    "):
            formula = False
        out.append(line if formula else _escaped(line, section))
    if what in ("attribute", "data", "property"):
        out[:0] = ["..", ""]  # an empty comment, or napoleon takes words before a colon for a type
    lines[:] = out


def _escaped(line: str, section: str) -> str:
    """The line with what reStructuredText would read as markup escaped, outside of code."""
    name, rest = "", line
    if section == "Args" and (match := _FIELD.match(line)):  # which napoleon escapes itself
        name, rest = match[0], line[match.end() :]
    parts = _CODE.split(rest)
    return name + "".join(p if p.startswith("`") else _SPECIAL.sub(r"\\\1", p) for p in parts)


def setup(app: Any) -> None:
    """Docstrings are made ready before napoleon reads them (priority 500)."""
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)
