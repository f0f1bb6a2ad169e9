"""photon sink postgres into a real server: both are killed again and again, and each record is there once.

Without PostgreSQL's server these tests skip and say so; with CI=true nothing skips.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.cli.errors import DONE, FAILED, USAGE
from tests.integration.commands import photon
from tests.integration.killed_sink import line, survive
from tests.integration.postgres import Postgres, programs
from tests.unit.outputs.helpers import written_output


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    found = programs()
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed, and CI has to test with it")
        pytest.skip("needs PostgreSQL's server: apt-get install postgresql")
    server = Postgres(found)
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_each_record_once_whatever_is_killed(postgres: Postgres, tmp_path: Path) -> None:

    def there() -> int:
        if postgres.rows("SELECT to_regclass('clicks')") == [(None,)]:
            return 0
        (count,) = postgres.rows("SELECT count(*) FROM clicks")[0]
        return int(count)

    into = ("--into", postgres.address, "--table", "clicks", "--commit-age", "0.05")
    total = survive(tmp_path, "postgres", *into, server=postgres, there=there, kills=8, of_server=range(1, 8, 2))
    rows = postgres.rows("SELECT event_id, key, record->'foreign'->>'n', event_time_ns, kind, line FROM clicks")
    assert sorted(rows, key=lambda row: int(row[2])) == [
        (f"c{n}", "k", str(n), n * 1000, "joined", None) for n in range(total)
    ]
    (stored,) = postgres.rows("SELECT committed::jsonb->>'records' FROM photon_sinks WHERE into_table = 'clicks'")
    assert stored == (str(total),)
    assert "retrying from the last commit" in (tmp_path / "sink.log").read_text()


def test_what_jsonb_cannot_hold_stands_as_text(postgres: Postgres, tmp_path: Path) -> None:
    slot = written_output(tmp_path)
    odd = [b'"\\u0000"', b"1" + b"0" * 200_000]
    lines = [line(0)] + [line(n).replace(b'"w": ', b'"x": ' + each + b', "w": ') for n, each in enumerate(odd, 1)]
    slot.append(1, b"".join(lines) + line(3).replace(b'"c3"', b'"c\\u00003"'))
    into = ["--into", postgres.address, "--table", "odd"]
    assert photon("sink", "postgres", slot.place.output, *into, "-o", "json").json == {"records": 4}
    rows = postgres.rows("SELECT event_id, record IS NULL, line FROM odd")
    assert sorted(rows[:3]) == [
        ("c0", False, None), *((f"c{n}", True, each.decode().strip()) for n, each in enumerate(lines[1:], 1))
    ]  # fmt: skip
    assert rows[3][0] is None


def test_refusals_are_one_line(postgres: Postgres, tmp_path: Path) -> None:
    slot = written_output(tmp_path)
    slot.append(1, line(1))
    slot.append(1, line(2), kind="late")

    def refused(*options: str, into: str = postgres.address, table: str = "refusing") -> tuple[int, str]:
        done = photon("sink", "postgres", slot.place.output, "--into", into, "--table", table, *options)
        assert done.err.count("\n") == (1 if done.code else 0), done.err
        return done.code, done.err

    assert refused() == (DONE, "")
    code, said = refused("--kind", "late")
    assert code == USAGE
    assert "was begun with kinds joined; this run has late; give this sink another --name" in said
    assert refused("--kind", "late", "--name", "other") == (DONE, "")
    code, said = refused(table="a.b.c")
    assert (code, "TABLE or SCHEMA.TABLE" in said) == (USAGE, True)
    code, said = refused(table="nowhere.clicks")
    assert (code, 'schema "nowhere" does not exist' in said) == (FAILED, True)
    code, said = refused(into="postgresql://photon@127.0.0.1:1/postgres")
    assert (code, "PostgreSQL at 127.0.0.1:1" in said) == (FAILED, True)
    code, said = refused(into="nonsense nonsense")
    assert (code, "not an address of PostgreSQL" in said) == (USAGE, True)
    postgres.do("CREATE UNIQUE INDEX ON refusing (kind)")
    slot.append(1, line(3))
    code, said = refused()
    assert (code, "duplicate key" in said) == (FAILED, True)
    postgres.do("DROP TABLE refusing")
    code, said = refused()
    assert code == USAGE
    assert "the table is gone, and photon_sinks says that 1 record went there" in said
