"""``photon table``: its output for a SQLite file, for a deployment, and for errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from photon.config.errors import UsageError
from photon.config.loader import convert
from photon.fleet.hbase import check
from photon.tables import Tables, collecting
from photon.tables.api import Cell, Mutation
from photon.tables.cell import Commit, commit_meta, lock_meta, primary_line
from photon.tables.surroundings import Surroundings
from tests.unit.refusals import photon, refused

PROGRAM = """
from photon.tables import Tables, observer
tables = Tables.open({database!r})
tables.around.limits.grace_s = 0.0

@observer(tables, table="clicks", column="campaign")
def count(txn, click):
    row = txn.table("campaigns").row(click.get("campaign"))
    row.set("clicks", (row.get("clicks") or 0) + 1)
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    with Tables.open(path) as tables:
        for number in range(5):
            with tables.transaction() as transaction:
                transaction.table("clicks").row(f"k{number}").set("campaign", f"c{number % 2}")
                transaction.table("clicks").row(f"k{number}").set("cents", number)
    return path


def table(*arguments: object) -> Result:
    return photon("table", *arguments)


def test_a_row_and_a_table_are_shown_as_of_now(database: Path) -> None:
    said = table("scan", "clicks", "k3", "--database", database)
    assert said.exit_code == 0
    assert said.output.splitlines()[1:] == ["campaign  c1", "cents     3"]
    said = table("scan", "clicks", "k3", "cents", "--database", database, "-o", "json")
    assert json.loads(said.output)["values"] == {"cents": 3}
    assert table("scan", "clicks", "none", "--database", database).exit_code == 1

    assert table("scan", "--database", database).output == "clicks\n"
    said = table("scan", "clicks", "--database", database, "--from", "k1", "--to", "k3", "-o", "json")
    assert [row["row"] for row in json.loads(said.output)["rows"]] == ["k1", "k2"]
    said = table("scan", "clicks", "--database", database, "--limit", 2)
    assert said.output.splitlines() == [
        "row  campaign  cents",
        "k0   c0        0",
        "k1   c1        1",
        "there are more rows; the first 2 are shown (see --limit, --from)",
    ]


def test_nothing_of_a_value_controls_the_terminal(database: Path) -> None:
    with Tables.open(database) as tables, tables.transaction() as transaction:
        transaction.table("evil").row("r").set("c", "\x1b[31mred")
    assert "\\x1b[31mred" in table("scan", "evil", "--database", database).output


def test_observers_of_a_program_run_and_are_counted(database: Path, tmp_path: Path) -> None:
    program = tmp_path / "count.py"
    program.write_text(PROGRAM.format(database=str(database)))
    said = table("observe", program, "--once")
    assert said.exit_code == 0, said.output
    assert said.output == "observers count: 5 runs committed, 0 conflicts\n"
    assert "--metrics nowhere: must be host:port" in table("observe", program, "--metrics", "nowhere").stderr
    said = table("scan", "campaigns", "--database", database, "-o", "json")
    assert {row["row"]: row["values"]["clicks"] for row in json.loads(said.output)["rows"]} == {"c0": 3, "c1": 2}
    assert table("verify", "--database", database).exit_code == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n", "has no observers; decorate functions"),
        ("x = 1\n1 / 0\n", "program.py:2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("def\n", "SyntaxError"),
    ],
)
def test_a_program_that_fails_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "program.py").write_text(text)
    assert problem in refused(table("observe", tmp_path / "program.py"))


def test_an_observer_that_no_program_has_is_retired(database: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    two = PROGRAM + PROGRAM[PROGRAM.index("@observer") :].replace("def count", "def gone").replace(
        '"campaigns"', '"x"'
    )
    for text in (two, PROGRAM):
        program.write_text(text.format(database=str(database)))
        with Tables.open(database) as tables, tables.transaction() as t:
            t.table("clicks").row(f"k{len(text)}").set("campaign", "c")
        assert table("observe", program, "--once").exit_code == 0
    with Tables.open(database) as tables:
        assert len(tables.around.store.dirty("clicks", "", 10)) == 1, "it is kept for the one that is gone"
    assert table("observe", program, "--retire", "gone").output == "gone is retired\n"
    assert table("observe", program, "--once").exit_code == 0
    with Tables.open(database) as tables:
        assert tables.around.store.dirty("clicks", "", 10) == []
    assert "remove it there first" in table("observe", program, "--retire", "count").stderr
    again = table("observe", program, "--retire", "gone")
    assert (again.exit_code, again.output) == (2, "photon: --retire gone: no such observer; known are count\n")


def test_locks_that_dead_clients_left_are_told(database: Path) -> None:
    with Tables.open(database) as tables:
        primary = Cell("clicks", "k9", "campaign")
        meta = lock_meta(50, 1_000, b"elsewhere/1/2", Commit(0, 0, 0), primary_line(primary), b'"c"')
        assert tables.around.store.mutate([Mutation(primary, None, meta)]) == [True]
    said = table("scan", "--locks", "--database", database, "-o", "json")
    assert said.exit_code == 3
    [lock] = json.loads(said.output)["locks"]
    assert (lock["cell"], lock["client"], lock["old"]) == ("clicks/k9/campaign", "elsewhere/1/2", True)
    assert "clicks/k9/campaign" in table("scan", "--locks", "clicks", "--database", database).output
    assert table("scan", "--locks", "other", "--database", database).exit_code == 0


def test_old_versions_are_removed_by_hand(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = collecting.remove

    def at_once(around: Surroundings, *more: Any) -> int:
        around.limits.grace_s = 0.0
        return remove(around, *more)

    monkeypatch.setattr(collecting, "remove", at_once)
    with Tables.open(database) as tables, tables.transaction() as t:
        t.table("clicks").row("k0").set("campaign", "c9")
    said = table("verify", "--collect", "0s", "--database", database)
    assert said.output.splitlines()[0] == "1 old version removed"
    said = table("verify", "--collect", "0s", "--database", database, "-o", "json")
    assert json.loads(said.output)["collected"] == 0
    assert json.loads(table("verify", "--database", database, "-o", "json").output)["collected"] is None


def test_verify_finds_what_does_not_fit_together(database: Path) -> None:
    with Tables.open(database) as tables:
        store, cell = tables.around.store, Cell("clicks", "k0", "campaign")
        [held] = tables.around.read_cells([cell])
        newest = Commit(10_000, 9_999, 0)
        assert store.mutate([Mutation(cell, held.meta, commit_meta(newest))]) == [True]
        assert store.mutate([Mutation(Cell("clicks", "k8", "c"), None, b"nonsense")]) == [True]
    said = table("verify", "--database", database)
    assert said.exit_code == 3
    lines = said.output.splitlines()
    assert lines[0].endswith("3 problems")
    assert lines[1].startswith("clicks/k0/campaign: the meta has 10000, but the newest version is at ")
    assert lines[2].startswith("clicks/k8/c: a cell holds b'nonsense'")
    assert "below 10000 in the tables" in lines[3]


def test_a_deployment_names_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "photon.toml"
    file.write_text('[tables]\nfile = "own.db"\n')
    assert "own.db: no such file" in refused(table("scan", "--config", file))
    made = table("init", "--config", file)
    assert made.output == "SQLite, own.db: created, its oracle answers\n"
    again = table("init", "--config", file, "-o", "json")
    assert json.loads(again.output) == {"store": "sqlite", "made": False, "durable": True}
    with Tables.open(file) as tables, tables.transaction() as transaction:
        transaction.table("t").row("r").set("c", 1)
    assert table("scan", "--config", file).output == "t\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "tables: is not in the configuration"),
        ('[tables]\nthrift = ["h:1"]\n', "tables.durable: is not set: HBase at h:1 keeps"),
        ('[tables]\nthrift = ["h:1"]\ndurable = true\n', "tables.thrift: needs [registry.replicas.NAME]"),
        ('[tables]\nthrift = ["h"]\ndurable = true\n[registry.replicas.r1]\naddress = "127.0.0.1:1"\n'
         'directory = "r1"\n', "must be host:port of HBase"),
        ('[tables]\nfiles = "x"\n', "files"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "photon.toml"
    file.write_text(text)
    assert problem in refused(table("init", "--config", file))


def test_one_place_is_named(database: Path, tmp_path: Path) -> None:
    assert "give the deployment file" in table("scan").stderr
    file = tmp_path / "photon.toml"
    file.write_text("[tables]\n")
    assert "give either --database or --config" in table("scan", "--database", database, "--config", file).stderr
    assert "no such file" in table("scan", "--database", tmp_path / "none.db").stderr


def test_doctor_tells_what_is_made_and_what_may_be_lost(tmp_path: Path) -> None:

    replica = {"registry": {"replicas": {"r1": {"address": "127.0.0.1:1", "directory": "r1"}}}}
    notes = check(convert({"tables": {"thrift": ["h:1"]}, **replica}, "file"))
    assert notes[0].startswith("to be created once, if missing: table photon_tables in HBase at h:1 (photon table in")
    assert "tables.durable is not set" in notes[1]
    assert len(check(convert({"tables": {"thrift": ["h:1"], "durable": True}, **replica}, "file"))) == 1
    assert check(convert({"tables": {}}, "file")) == []
    with pytest.raises(UsageError, match=r"^tables\.thrift: needs"):
        check(convert({"tables": {"thrift": ["h:1"]}}, "file"))


def test_status_of_the_oracle_needs_hbase_and_tells_who_is_silent(tmp_path: Path) -> None:
    file = tmp_path / "photon.toml"
    replica = '[registry.replicas.r1]\naddress = "127.0.0.1:1"\ndirectory = "r1"\n'
    file.write_text("[tables]\n" + replica)
    assert "SQLite keeps its timestamps in its file" in refused(photon("status", "oracle", "--config", file))
    file.write_text('[tables]\nthrift = ["h:1"]\n' + replica)
    said = photon("status", "oracle", "--config", file, "-o", "json")
    assert said.exit_code == 3
    [row] = json.loads(said.output)["replicas"]
    assert (row["replica"], row["answers"], row["leads"]) == ("r1", False, False)
