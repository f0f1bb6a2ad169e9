"""Rows and columns: ``-o json`` has the rows, people see the columns; and the progress of commands."""

from __future__ import annotations

import json
import sys

import pytest

from photon.cli.heads import Printed
from photon.cli.looking import Progress, waited
from photon.config.words import size
from photon.fleet.parts import Column, Part, bad_if

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


def test_without_rows_people_read_why_or_nothing_or_the_heads(capsys: pytest.CaptureFixture[str]) -> None:
    for none, said in (("no node is named", "no node is named\n"), ("", ""), (None, "node  held  asked\n")):
        Printed("table").part(Part("nodes", [], COLUMNS, none))
        assert capsys.readouterr().out == said


def test_a_row_can_be_shown_as_a_line_for_each_column_that_says_something() -> None:
    columns = (Column("node"), Column("kept in", "disk", str), Column("why", lambda row: "", str))
    assert Part("node", [{"node": "c1", "disk": "/d"}], columns).lines() == ["  node    c1", "  kept in /d"]


def test_the_status_page_gets_a_part_in_words() -> None:
    part = Part("nodes", ROWS, COLUMNS, style=bad_if(lambda row: not row["hits"]))
    assert part.on_page() == {
        "name": "nodes",
        "columns": [["node", "l"], ["held", ""], ["asked", ""]],
        "rows": [["c1", "2.0 KiB", "2,400"], ["c2", "-", "0"]],
        "styles": ["", "bad"],
        "none": "none",
    }


@pytest.mark.parametrize(
    ("live", "passing", "said"),
    [
        (False, False, "shard 1: 1\nshard 2: 1\n"),
        (False, True, ""),
        (True, False, "\r\x1b[Kshard 1: 1\r\x1b[Kshard 1: 2\n\r\x1b[Kshard 2: 1\n"),
        (True, True, "\r\x1b[Kshard 1: 1\r\x1b[Kshard 1: 2\n\r\x1b[Kshard 2: 1\r\x1b[K"),
    ],
)
def test_progress_is_replaced_on_a_terminal_and_a_line_for_each_step_elsewhere(
    live: bool, passing: bool, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: live)
    progress = Progress(passing=passing)
    for line in ("shard 1: 1", "shard 1: 2", "shard 2: 1"):
        progress.tell(line, line.partition(":")[0])
    progress.end()
    progress.end()
    assert capsys.readouterr().err == said


def test_a_command_looks_until_it_is_so_or_once_more_at_the_end_of_its_time() -> None:
    numbers = iter(range(9))
    assert waited(lambda: next(numbers), lambda number: number == 3, 60.0, 0.0) == 3
    assert waited(lambda: next(numbers), lambda number: False, 0.0, 0.0) == 4
