"""Formulas as MathML, made when the site is built: browsers set them without script or network."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_LOGGER = logging.getLogger(__name__)


def inline(translator: Any, node: nodes.math) -> None:
    """A formula in a line."""
    translator.body.append(_markup(node, as_block=False))
    raise nodes.SkipNode


def display(translator: Any, node: nodes.math_block) -> None:
    """A formula in lines of its own."""
    translator.body += [
        translator.starttag(node, "div", CLASS="math"),
        _markup(node, as_block=True),
        "</div>\n",
    ]
    raise nodes.SkipNode


def _markup(node: nodes.Element, *, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _LOGGER.warning("a formula that MathML has no words for: %s", error, location=node)
        return ""


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer that `html_math_renderer` names."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
