"""Makes the notebooks of `sources/`: their cells, with the outputs of running them.

A source is a Python file in the percent format: `# %%` begins a cell of code, `# %% [markdown]` one of text. Each notebook runs in a folder
of its own, with the forage package and program of this interpreter.

make.py [NAME...], with nbclient and ipykernel installed; all notebooks by default.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = HERE / "sources"


def cells(source: Path) -> list[dict[str, Any]]:
    """The cells of a source, as a notebook has them before it is run."""
    begun = re.split(r"^# %%(.*)\n", source.read_text(), flags=re.MULTILINE)
    if begun[0].strip():
        raise ValueError(f"{source}: what stands before the first `# %%` is in no cell; begin with one")
    made = []
    for place, (kind, text) in enumerate(zip(begun[1::2], begun[2::2], strict=True)):
        text, name = text.strip("\n"), f"cell-{place}"
        if kind.strip() == "[markdown]":
            lines = [re.sub(r"^# ?", "", line) for line in text.split("\n")]
            made.append({"cell_type": "markdown", "id": name, "metadata": {}, "source": "\n".join(lines)})
        elif not kind.strip():
            code = {"cell_type": "code", "id": name, "metadata": {}, "source": text}
            made.append(code | {"execution_count": None, "outputs": []})
        else:
            raise ValueError(f"{source}: a cell of kind `{kind.strip()}`; write `# %%` or `# %% [markdown]`")
    return made


def notebook(made: list[dict[str, Any]]) -> dict[str, Any]:
    """A notebook of these cells."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def ran(source: Path) -> str:
    """The text of the notebook of a source, run."""
    import nbformat
    from nbclient import NotebookClient

    made = nbformat.from_dict(notebook(cells(source)))
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(made, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.execute()
    for cell in made["cells"]:
        # When a cell was run is not part of it.
        cell["metadata"] = {}
    made["metadata"] = notebook([])["metadata"]
    # Lines of a cell are one text in memory, and a list in the file.
    return str(nbformat.writes(made)) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in SOURCES.glob("*.py")):
        target = HERE / f"{name}.ipynb"
        target.write_text(ran(SOURCES / f"{name}.py"))
        outputs = sum(len(cell.get("outputs", [])) for cell in json.loads(target.read_text())["cells"])
        print(f"{target}: {outputs} outputs")
