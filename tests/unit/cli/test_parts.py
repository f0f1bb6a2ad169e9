"""Rows and columns: ``-o json`` has the rows, people see the columns."""

from __future__ import annotations

import json

import pytest

from photon.cli.heads import Printed
from photon.config.words import size
from photon.fleet.parts import Column, Part

ROWS = [{"node": "c1", "bytes": 2048, "hits": 1200}, {"node": "c2", "bytes": None, "hits": 0}]
COLUMNS = (Column("node"), Column(">held", "bytes", size), Column(">asked", lambda row: row["hits"] * 2))


def test_people_see_columns_in_words_and_lines_below(capsys: pytest.CaptureFixture[str]) -> None:
    Printed("table").part(Part("nodes", ROWS, COLUMNS), "c2 is new", epoch=3)
    assert capsys.readouterr().out.splitlines() == [
        "node     held  asked",
        "c1    2.0 KiB  2,400",
        "c2          -      0",
        "c2 is new",
    ]


def test_json_has_the_rows_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    Printed("json").part(Part("nodes", ROWS, COLUMNS), "c2 is new", epoch=3)
    assert json.loads(capsys.readouterr().out) == {"nodes": ROWS, "epoch": 3}


def test_a_field_that_a_row_lacks_is_unknown() -> None:
    assert Column("address").cell({"node": "c1"}) == "-"
