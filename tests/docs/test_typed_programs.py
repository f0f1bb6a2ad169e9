"""The programs of the page about computations are typed, as a user who runs mypy --strict would have them."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"^```python\n(.*?)^```$|^cat > \w+\.py <<'END'\n(.*?)^END$", re.DOTALL | re.MULTILINE)


def test_programs_pass_mypy_strict(tmp_path: Path) -> None:
    programs = ["".join(found) for found in PROGRAM.findall((ROOT / "docs" / "computations.md").read_text())]
    assert len(programs) > 4
    names = []
    for n, program in enumerate(programs):
        name = "spend.py" if "class Spend" in program else f"program{n}.py"
        (tmp_path / name).write_text(program)
        names.append(str(tmp_path / name))
    settings = tmp_path / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = True\nfollow_imports = silent\nmypy_path = {ROOT / 'src'}:{tmp_path}\n")
    said, wrong, code = api.run(["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache"), *names])
    assert code == 0, said + wrong
