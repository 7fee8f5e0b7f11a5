"""Imports point one way: the order of README's table of modules, from bottom to top."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "jaxprivnb"
UP = {("posterior", "report"), ("tables", "report"), ("report", "plots")}
"""What reaches up, at the time of a call: posteriors and tables describe themselves, and the page
about a release has pictures."""


def module_name(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_name(path): path for path in (ROOT / PACKAGE).rglob("*.py")}


def order():
    """Modules and folders as README lists them."""
    section = (ROOT / "README.md").read_text().split("## Where things are")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name.rstrip("/") for cell in cells for name in re.findall(r"`(.*?)`", cell)]


def imports(path):
    """(module, whether at import time) of every import of this package; types alone are none."""

    def visit(node, at_import):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            at_import = False
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name if name in MODULES else node.module for name in full]
        else:
            found = []
        yield from ((name, at_import) for name in found if name.split(".")[0] == PACKAGE)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_import)

    return list(visit(ast.parse(path.read_text()), True))


def unit(name):
    """The module or folder right below the package; "" for the package itself."""
    return name.split(".")[1] if "." in name else ""


def test_the_table_names_every_module_once():
    listed = order()
    assert len(set(listed)) == len(listed)
    assert {*listed, "", "__main__", "_version"} == {unit(name) for name in MODULES}


def test_modules_import_what_stands_before_them():
    rank = {name: n for n, name in enumerate(["_version", *order(), "", "__main__"])}
    up = set()
    for name, path in MODULES.items():
        for other, at_import in imports(path):
            mine, theirs = unit(name), unit(other)
            if rank[theirs] > rank[mine]:
                assert not at_import, f"{name} imports {other}, which stands above it"
                up.add((mine, theirs))
    assert up == UP


def test_no_module_waits_for_itself():
    sorter = TopologicalSorter(
        {
            name: {other for other, at_import in imports(path) if at_import and other != name}
            for name, path in MODULES.items()
        }
    )
    assert set(sorter.static_order()) == MODULES.keys()
