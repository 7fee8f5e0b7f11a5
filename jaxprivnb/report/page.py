"""One HTML file that opens anywhere: its style and pictures are in it, and it loads nothing.

A page is a title and sections; a section is made of the pieces below, which are HTML already. What
they are given is text, and every text is escaped.
"""

import base64
import io
import math
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from jaxprivnb._version import __version__
from jaxprivnb.extras import require
from jaxprivnb.report.names import shown

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem 1.25rem 4rem; background: #fff;
  color: #1b1b1b; font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 .5rem; padding-top: .6rem; border-top: 1px solid #ccc;
  overflow-wrap: anywhere; }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0 .8rem; max-width: 46rem; }
.lead { color: #444; }
.note { color: #555; font-size: .9rem; }
.warning { border-left: 4px solid #b3541e; background: #fdf3ec; padding: .5rem .8rem; }
nav { font-size: .9rem; columns: 14rem; margin: .8rem 0; }
nav a { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
a { color: #0b5394; }
div.wide { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .65rem; border-bottom: 1px solid #e3e3e3; text-align: right;
  vertical-align: baseline; }
th.text, td.text { text-align: left; }
thead th { border-bottom: 1px solid #888; font-weight: 600; }
tbody th { font-weight: 600; }
tr.group th { padding-top: .8rem; border-bottom: 1px solid #aaa; }
figure { margin: .8rem 0 1.2rem; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; margin-top: .3rem; }
details { margin: .6rem 0 1rem; }
summary { cursor: pointer; color: #0b5394; }
footer { margin-top: 3rem; color: #666; font-size: .85rem; border-top: 1px solid #ccc;
  padding-top: .6rem; }
@media (max-width: 48rem) { figure.wide img { max-width: none; } }
@media print { details { display: block; } nav { display: none; } }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_WIDE = 520
"""Pixels from which on a picture is scrolled on a narrow screen, and not shrunk."""


class Section(NamedTuple):
    """A heading and what stands below it."""

    title: str
    pieces: Sequence[str]
    """HTML, from the functions below."""


def page(title: str, lead: str, sections: Sequence[Section]) -> str:
    """The whole file.

    Args:
        title: of the page.
        lead: one sentence below the title.
        sections: what follows, with links to each.
    """
    links = "".join(
        f'<a href="#s{n}">{_text(one.title)}</a>' for n, one in enumerate(sections, start=1)
    )
    body = "".join(
        f'<section id="s{n}"><h2>{_text(one.title)}</h2>{"".join(one.pieces)}</section>\n'
        for n, one in enumerate(sections, start=1)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{_text(title)}</h1>\n<p class="lead">{_text(lead)}</p>\n<nav>{links}</nav>\n'
        f"{body}<footer>Written by jaxprivnb {__version__}; the file loads nothing else.</footer>\n"
        "</body>\n</html>\n"
    )


def heading(text: str) -> str:
    """A heading within a section."""
    return f"<h3>{_text(text)}</h3>\n"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; kind "note" is small, "warning" stands out."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{_text(text)}</p>\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], text: int = 1) -> str:
    """A table that scrolls by itself where it is too wide.

    Args:
        heads: of the columns.
        rows: cells; a row of a single cell is a heading that spans them all.
        text: how many of the first columns hold text; the others are numbers, to the right.
    """

    def cells(tag: str, row: Sequence[Any]) -> str:
        kinds = [' class="text"' if c < text else "" for c in range(len(row))]
        return "".join(
            f"<{tag}{kind}>{_text(cell)}</{tag}>" for kind, cell in zip(kinds, row, strict=True)
        )

    body = "".join(
        f'<tr class="group"><th class="text" colspan="{len(heads)}">{_text(row[0])}</th></tr>'
        if len(row) == 1 < len(heads)
        else f"<tr>{cells('td', row)}</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{cells("th", heads)}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """A table of names and what they are."""
    rows = "".join(
        f'<tr><th class="text">{_text(name)}</th><td class="text">{_text(value)}</td></tr>'
        for name, value in pairs
    )
    return f'<div class="wide"><table><tbody>{rows}</tbody></table></div>\n'


def folded(title: str, *pieces: str) -> str:
    """Pieces that open at a click."""
    return f"<details><summary>{_text(title)}</summary>{''.join(pieces)}</details>\n"


def figure(drawn: Any, words: str, caption: str = "") -> str:
    """A matplotlib figure, or the one an Axes is on, as SVG within the page; it is then closed.

    Args:
        drawn: a `Figure` or an `Axes`.
        words: what it shows, for who cannot see it.
        caption: below it.
    """
    matplotlib = require("matplotlib", "figures", "a report")
    pyplot = require("matplotlib.pyplot", "figures", "a report")
    whole = getattr(drawn, "figure", None) or drawn
    data = io.BytesIO()
    # Letters as shapes, since fonts differ; without a date and with fixed names, as it was drawn
    # it is written again.
    settings = {"svg.fonttype": "path", "svg.hashsalt": "jaxprivnb"}
    with matplotlib.rc_context(settings):
        whole.savefig(data, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(whole)
    return picture(data.getvalue(), "image/svg+xml", words, caption, whole.get_figwidth() * 96)


def picture(data: bytes, kind: str, words: str, caption: str = "", width: float = math.nan) -> str:
    """A picture that is a file already, such as a PNG.

    Args:
        data: the file.
        kind: its media type.
        words: what it shows, for who cannot see it.
        caption: below it.
        width: in pixels.
    """
    wide = ' class="wide"' if width > _WIDE else ""
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    below = f"<figcaption>{_text(caption)}</figcaption>" if caption else ""
    return f'<figure{wide}><img src="{source}" alt="{_text(words)}">{below}</figure>\n'


def write_page(path: str | os.PathLike[str], html: str) -> None:
    """Write it whole or not at all."""
    from jaxprivnb.storage import LocalStorage

    target = Path(path)
    LocalStorage(target.parent).write(target.name, html.encode())


def _text(value: Any) -> str:
    return escape(shown(value))
