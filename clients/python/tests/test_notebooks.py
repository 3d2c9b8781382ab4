"""The notebooks: made of their sources, and their cells run with the package that is installed."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BINARY

import forage

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def _make():
    spec = importlib.util.spec_from_file_location("make", NOTEBOOKS / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = _make()
SOURCES = sorted(make.SOURCES.glob("*.py"))


def joined(text):
    return text if isinstance(text, str) else "".join(text)


def test_every_source_has_its_notebook():
    assert len(SOURCES) >= 3
    assert [path.stem for path in SOURCES] == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_is_what_its_source_says_with_outputs(source):
    path = NOTEBOOKS / f"{source.stem}.ipynb"
    if not path.exists():
        pytest.fail(f"there is no {path.name}: run notebooks/make.py")
    made = json.loads(path.read_text())["cells"]
    shown = [(cell["cell_type"], joined(cell["source"])) for cell in made]
    assert shown == [(cell["cell_type"], cell["source"]) for cell in make.cells(source)], "run notebooks/make.py again"
    outputs = [output for cell in made for output in cell.get("outputs", [])]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    # In the order of the cells, from a kernel that had run nothing else.
    counts = [cell["execution_count"] for cell in made if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_says_first_how_long_it_takes(source):
    assert re.search(r"^The notebook takes .*(seconds|minute)", make.cells(source)[0]["source"], re.MULTILINE)


def test_the_readme_links_every_notebook():
    readme = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((\w+)\.ipynb\)", readme)
    assert sorted(linked) == [path.stem for path in SOURCES]


@pytest.mark.skipif(not BINARY, reason="there is no forage program; write its path to FORAGE_BIN")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_code_cells_run(source, tmp_path):
    code = [cell["source"] for cell in make.cells(source) if cell["cell_type"] == "code"]
    if any(".frame()" in cell for cell in code):
        pytest.importorskip("pandas", reason="pandas is not installed")
    (tmp_path / "cells.py").write_text("\n\n".join(code) + "\n")
    # The package under test, whether it is installed or beside these tests.
    variables = os.environ | {"PYTHONPATH": str(Path(forage.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "cells.py"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
