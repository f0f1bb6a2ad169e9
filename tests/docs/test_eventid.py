"""The code in docs/eventid.md works as written."""

import re
import subprocess
import sys
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "eventid.md").read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "eventid.mark").stat().st_size == 20
