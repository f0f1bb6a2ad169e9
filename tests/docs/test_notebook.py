"""The notebook runs from its first cell to its last, and shows what comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
RUN = """
import sys
sys.modules["rfc3987_syntax"] = None  # jsonschema would make parsers, for two seconds, of what no notebook has
import nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbformat.validate(notebook)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, "run.ipynb")
"""


def printed(path: Path) -> list[Any]:
    """The cells' printed text and last values. Tables are drawn by others, and warnings name a file."""
    cells = json.loads(path.read_text())["cells"]
    found = [output for cell in cells for output in cell.get("outputs", []) if output.get("name") != "stderr"]
    texts = ["".join(each.get("text") or each["data"]["text/plain"]) for each in found]
    return [each for each in texts if "│" not in each and "\n0 " not in each]


def test_the_notebook_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert printed(tmp_path / "run.ipynb") == printed(NOTEBOOK)
    assert len(printed(NOTEBOOK)) == 6
