"""``unmatched = "inline"``: the joined record of an event without a primary one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import (
    Adapter,
    AdapterError,
    BadRecord,
    ForeignHeader,
    Joined,
    LogFile,
    Matching,
    Unpaired,
)
from photon.adapters.envelope import Envelope
from photon.adapters.envelope_reader import read_block
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.shaping import shaped_adapter
from photon.batch.events import Events, ForeignEvent
from photon.config.settings import Join
from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryRecord
from photon.idregistry.api import Kind
from photon.joiner.api import Outcome
from photon.joiner.rows import Rows
from photon.joiner.verdicts import HUNG_TIMES, Decided, Judge, envelope_lines, rows_of, settle_mismatched
from photon.outputs.records import decode
from photon.outputs.typed_columns import LineTypes

FILE = LogFile("clicks.log")
ABSENT, FOUND = LookUpCode.ABSENT, LookUpCode.FOUND


class Clicks(Adapter):
    """The word decides the fate of a record."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(b"k", 0)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        if record == b"bad":
            raise BadRecord("cannot be")
        while record == b"hang":
            pass
        return {b"newline": b"1\n2", b"text": None}.get(record, b'"%b"' % record)

    primary_payload = foreign_payload


class Apart(Clicks):
    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Unpaired:
        return Unpaired("another day")

    def unmatched_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"alone"' if record != b"bad" else super().unmatched_payload(record, file)


def decided(
    adapter: Adapter, *found: tuple[bytes, LookUpCode], judge: Judge | None = None, inline: bool = True
) -> tuple[Events, Decided]:
    adapter.unmatched_inline, adapter.time_limit_s = inline, 0.05
    events = Events.of(
        ForeignEvent(b"e%d" % at, (b"e%d" % at).ljust(16), at, b"k", record, FILE, at, 0)
        for at, (record, _) in enumerate(found)
    )
    records = [PrimaryRecord(b"k", LogFile("q.log"), 7) if code is FOUND else None for _, code in found]
    judge = judge or Judge(adapter, check_payloads=True)
    made = judge.decide(events, EventLookUps.of([code for _, code in found], records), frozenset())
    settle_mismatched(events, made, 10)
    judge.inline(events, made)
    return events, made


def rows(events: Events, made: Decided, adapter: Adapter | None = None) -> Rows:
    return rows_of(events, made, envelope_lines(Envelope(adapter=adapter))(events, made, 7, 0), 7)


def test_an_unmatched_event_is_a_joined_record_without_a_primary() -> None:
    made = rows(*decided(Clicks({}), (b"a", FOUND), (b"b", ABSENT), (b"text", ABSENT)))
    assert made.kinds.tolist() == [Kind.JOINED, Kind.UNMATCHED, Kind.UNMATCHED]
    assert made.logs(np.arange(3)).tolist() == [Kind.JOINED] * 3
    assert made.lines[1] == (
        b'{"event_id":"e1","key":"k","event_time_ns":1,"reason":"no primary event has this key","foreign":"b",'
        b'"primary":null,"source":{"file":"clicks.log","offset":1},"joined_at":"1970-01-01T00:00:00.000000Z",'
        b'"token":"0000000000000007"}\n'
    )
    assert orjson.loads(made.lines[2])["foreign_raw_base64"] == "dGV4dA=="
    assert read_block(b"".join(made.lines), parse=True).reasoned == [False, True, True]
    said = decode(b"".join(made.lines))
    assert said.primary == [b'"k"', None, None]
    assert [each is None for each in said.reason] == [True, False, False]


def test_one_that_is_no_pair_names_the_primary_event_it_has_not() -> None:
    events, made = decided(Apart({}), (b"a", FOUND), (b"bad", FOUND))
    assert made.unpaired == [0]  # the other is rejected
    assert [Kind(each) for each in made.kinds] == [Kind.UNMATCHED, Kind.REJECTED]
    lines = rows(events, made).lines
    said = orjson.loads(lines[0])
    assert (said["foreign"], said["primary"], said["reason"]) == ("alone", None, "another day")
    assert said["primary_source"] == {"file": "q.log", "offset": 7}
    assert b"cannot be" in lines[1]


@pytest.mark.parametrize(("record", "why"), [(b"bad", "cannot be"), (b"newline", "holds a line end")])
def test_one_without_a_payload_is_rejected(record: bytes, why: str) -> None:
    _, made = decided(Clicks({}), (record, ABSENT))
    assert made.kinds == bytes([Kind.REJECTED])
    assert why in made.reasons[0]
    assert not made.inline


def test_one_that_hangs_is_tried_again_before_it_is_rejected() -> None:
    adapter = Clicks({})
    judge = Judge(adapter, check_payloads=True)
    for _ in range(HUNG_TIMES - 1):
        _, made = decided(adapter, (b"hang", ABSENT), judge=judge)
        assert (made.kinds, made.outcomes, made.undone) == (b"\0", bytes([Outcome.RETRY]), {})
    _, made = decided(adapter, (b"hang", ABSENT), judge=judge)
    assert made.kinds == bytes([Kind.REJECTED])


def test_the_line_says_where_it_is_written_whatever_the_settings_are_now() -> None:
    trap = b'{"record":"x","primary":null,"source":{"file":"f"}},"primary":null,"source":'
    apart = rows(*decided(Clicks({}), (trap, ABSENT), inline=False))
    assert apart.logs(np.arange(1)).tolist() == [Kind.UNMATCHED]
    assert b'"record":' in apart.lines[0]
    for line in (apart, rows(*decided(Clicks({}), (b"b", ABSENT)))):
        again = Rows.decode(line.tokens, b"".join(line.encode()))
        assert again.logs(np.arange(1)).tolist() == line.logs(np.arange(1)).tolist()


@pytest.mark.parametrize("match", ["all", "latest"])
def test_an_event_whose_set_is_empty_is_one_record(match: str) -> None:
    adapter = Clicks({})
    adapter.matching = Matching(match)
    (line,) = rows(*decided(adapter, (b"a", ABSENT))).lines
    said = orjson.loads(line)
    assert (said["primary"], said["foreign"], "pair" in said) == (None, "a", False)


def shaped(table: Mapping[str, Any]) -> Adapter:
    sides = {
        "primary": {"format": "jsonl", "key": "k"},
        "foreign": {"format": "jsonl", "key": "k", "id": "i", "time": {"field": "t", "unit": "s"}},
    }
    return shaped_adapter(ConfiguredAdapter(sides), table, "shape", Path())


def test_what_shapes_joined_records_shapes_these() -> None:
    """Filters are about pairs; fields derived from the primary record take their defaults."""
    adapter = shaped(
        {
            "filter": [{"field": "foreign.mail", "missing": False}],
            "derive": [
                {"name": "foreign.who", "from": "primary.name", "default": "nobody"},
                {"name": "foreign.when", "from": "foreign.t"},
            ],
            "redact": {"foreign.mail": "mask"},
            "foreign": ["mail", "who", "when"],
        }
    )
    record = b'{"i":"1","k":"k","t":5,"mail":"ann@example.com"}'
    assert adapter.unmatched_payload(record, FILE) == b'{"mail":"****.com","who":"nobody","when":5}'
    (line,) = rows(*decided(adapter, (record, ABSENT)), adapter).lines
    assert b"ann@" not in line


def test_an_adapter_that_joins_by_itself_says_what_such_a_record_holds(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from photon.adapters.configured import ConfiguredAdapter\n"
        "from photon.adapters.contract import Joined\n"
        "class Own(ConfiguredAdapter):\n"
        "    def join(self, foreign, foreign_file, primary, primary_file):\n"
        "        return Joined(b'1', b'2')\n"
        "class Both(Own):\n"
        "    def unmatched_payload(self, record, file):\n"
        "        return b'1'\n"
    )
    side = {"format": "jsonl", "key": "k", "time": {"field": "t", "unit": "s"}}

    def loaded(name: str) -> Adapter:
        options = {"primary": {"format": "jsonl", "key": "k"}, "foreign": side}
        return adapter_of_join(Join(adapter=f"own.py:{name}", options=options, unmatched="inline"), "x", tmp_path)

    assert loaded("Both").unmatched_inline
    with pytest.raises(AdapterError, match="define unmatched_payload too") as refused:
        loaded("Own")
    assert "\n" not in str(refused.value)


def test_tables_have_null_in_all_columns_of_the_primary() -> None:
    pa = pytest.importorskip("pyarrow")
    made = rows(*decided(Clicks({}), (b"a", FOUND), (b"b", ABSENT)))
    joined = (
        made.lines[0].replace(b'"k"', b'{"a":1,"b":{"c":"x"}}').replace(b'"foreign":"a"', b'"foreign":{"d":false}')
    )
    joined = joined.replace(b'"key":{"a":1,"b":{"c":"x"}}', b'"key":"k"')
    alone = made.lines[1].replace(b'"foreign":"b"', b'"foreign":{"d":true}')
    for flat in (False, True):
        types = LineTypes(flat=flat)
        types.learn([alone])  # nothing is known of the primary's columns yet
        types.batch("joined", [joined])
        assert {path.partition(".")[0] for path, _ in types.grow()} == {"primary"}
        table = pa.Table.from_batches([types.batch("joined", [joined, alone])])
        names = [name for name in table.column_names if name.startswith("primary") and "source" not in name]
        assert names == (["primary_a", "primary_b_c"] if flat else ["primary"])
        assert [table.column(name).to_pylist()[1] for name in names] == [None] * len(names)
        assert table.column("_rest").to_pylist() == [None, None]
        assert table.column("reason").to_pylist() == [None, "no primary event has this key"]
