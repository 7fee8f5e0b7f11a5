"""The notebooks as they are kept: executed, in order, without errors or traces of a machine."""

import importlib
import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def code_cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook, [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_four():
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_kept_and_clean(path):
    notebook, cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    kinds = {output["output_type"] for output in outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert all(output.get("name") != "stderr" for output in outputs), "a warning was printed"
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    drawn = {"01": 3, "02": 2, "03": 3, "04": 0}
    assert len(pictures) == drawn[path.name[:2]]
    text = path.read_text(encoding="utf-8")
    assert not re.search(
        r"/tmp/|/home/|/root/|[A-Z]:\\\\", re.sub(r'"image/png": "[^"]*"', "", text)
    )
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in notebook["cells"])
    ids = [cell["id"] for cell in notebook["cells"]]
    assert ids == [f"{path.name[:2]}-{n:02d}" for n in range(len(ids))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_they_import_is_there(path):
    source = "\n".join("".join(cell["source"]) for cell in code_cells(path)[1])
    assert "import jaxprivnb" in source
    for module, names in re.findall(r"^from (jaxprivnb\S*) import (.+)$", source, re.MULTILINE):
        for name in names.split(","):
            assert hasattr(importlib.import_module(module), name.strip()), (module, name)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_the_package_where_it_is_missing(path):
    source = "".join(code_cells(path)[1][0]["source"])
    assert 'find_spec("jaxprivnb") is None' in source
    assert '%pip install --quiet "..[all]"' in source


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_run_from_top_to_bottom(path):
    nbclient, nbformat = (pytest.importorskip(name) for name in ("nbclient", "nbformat"))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(notebook, timeout=1800, resources=resources).execute()
    _, kept = code_cells(path)
    ran = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in zip(kept, ran, strict=True):
        assert [o["output_type"] for o in old["outputs"]] == [o.output_type for o in new.outputs]
