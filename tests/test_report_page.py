"""One HTML file that loads nothing, and what stands in it."""

import base64
import re
from html.parser import HTMLParser

import pytest

from jaxprivnb.report import page
from jaxprivnb.report.page import Section

VOID = {"meta", "img", "br"}
HOSTILE = '<script>alert("&")</script>\n'


class Checker(HTMLParser):
    """Raises where tags do not match; keeps what is loaded."""

    def __init__(self, html):
        super().__init__()
        self.open, self.loaded, self.text = [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.loaded += [v for k, v in attrs if k in ("src", "srcset", "data") or k == "href"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_of_every_piece():
    pieces = [
        page.heading("Numbers"),
        page.paragraph("Read them.", "note"),
        page.table(("name", "mean"), [["group"], ["a", 1.5], ["b", 2]]),
        page.facts([("N", 60)]),
        page.folded("more", page.paragraph("hidden")),
        page.picture(b"png", "image/png", "a picture", "below"),
    ]
    html = page.page("A title", "One sentence.", [Section("First", pieces), Section("Second", [])])
    found = Checker(html)
    text = " ".join(found.text)
    for words in ("A title", "One sentence.", "Numbers", "group", "1.5", "N", "60", "hidden"):
        assert words in text
    assert found.loaded == [
        "#s1",
        "#s2",
        f"data:image/png;base64,{base64.b64encode(b'png').decode()}",
    ]
    assert html.count('colspan="2"') == 1
    assert 'alt="a picture"' in html
    assert "<figcaption>below</figcaption>" in html
    assert "default-src 'none'" in html


def test_every_text_is_escaped():
    pieces = [
        page.heading(HOSTILE),
        page.paragraph(HOSTILE),
        page.table((HOSTILE,), [[HOSTILE]]),
        page.table((HOSTILE, HOSTILE), [[HOSTILE]]),
        page.facts([(HOSTILE, HOSTILE)]),
        page.folded(HOSTILE),
        page.picture(b"", "image/png", HOSTILE + '" onerror="x', HOSTILE),
    ]
    html = page.page(HOSTILE, HOSTILE, [Section(HOSTILE, pieces)])
    found = Checker(html)
    assert "<script" not in html
    assert not re.search(r'<img[^>]* onerror="', html)
    assert sum("<script>alert" in text for text in found.text) == 16


def test_figures_are_in_the_page_and_closed(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()

    def drawn(width):
        ax = pyplot.figure(figsize=(width, 2)).add_subplot()
        ax.plot([0, 1])
        return page.figure(ax, "a line")

    narrow, again, wide = drawn(3), drawn(3), drawn(8)
    assert pyplot.get_fignums() == before
    assert narrow == again  # no date, no random names
    assert "<figure>" in narrow
    assert '<figure class="wide">' in wide
    svg = base64.b64decode(re.search(r'base64,([^"]+)"', narrow)[1]).decode()
    assert "<svg" in svg
    assert not re.search(r'(?:href|src)="https?:', svg)
    assert "<text" not in svg  # letters are shapes, whatever fonts there are
    page.write_page(tmp_path / "new" / "p.html", narrow)
    assert (tmp_path / "new" / "p.html").read_text() == narrow
