"""A user's file is always loaded in the same way: its exceptions are one line with their place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.assembly.computing import load_topology
from photon.config.errors import UsageError
from photon.tables.program import tables_of


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's additions to it affect nobody else."""
    monkeypatch.setattr(sys, "path", [*sys.path])


BOTH = pytest.mark.parametrize("load", [load_topology, tables_of])


@BOTH
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = (", ":1: SyntaxError: '(' was never closed (user.py, line 1)"),
        ("\n\n1 / 0\n", ":3: ZeroDivisionError: division by zero"),
        ("def f():\n    raise ValueError('a\\nb')\nf()\n", ":2: ValueError: a b"),
        ("raise SystemExit(3)", ":1: SystemExit: 3"),
        ("import json\njson.loads('{')", ":2: JSONDecodeError: Expecting property name"),
    ],
)
def test_what_it_raises_is_one_line(tmp_path: Path, load: Callable[[Path], object], text: str, problem: str) -> None:
    file = tmp_path / "user.py"
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        load(file)
    said = str(raised.value)
    assert said.startswith(f"{file}{problem}")
    assert "\n" not in said


@BOTH
def test_what_is_no_python_file_is_said(tmp_path: Path, load: Callable[[Path], object]) -> None:
    with pytest.raises(UsageError, match=r"none\.py: no such file"):
        load(tmp_path / "none.py")
    (tmp_path / "notes.txt").write_text("x = 1")
    with pytest.raises(UsageError, match=r"notes\.txt: is not a Python file; name one that ends in \.py"):
        load(tmp_path / "notes.txt")


def test_it_finds_its_neighbours_and_may_be_called_like_a_package(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_photon.py").write_text("value = 1\n")
    (tmp_path / "photon.py").write_text(
        "from neighbour_of_photon import value\nfrom photon.tables import Tables\ntables = Tables.open(':memory:')\n"
    )
    assert len(tables_of(tmp_path / "photon.py")) == 1
