"""CSV records over several lines: well-formed ones are whole, however they arrive; broken quotes swallow nothing."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, Framing
from photon.adapters.envelope import Envelope
from photon.adapters.logs import quoted_framing
from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.framings import open_anywhere
from photon.adapters.logs.quoted_framing import QuotedLines

QUOTED = Framing("quoted")
CSV = {"format": "csv", "key": "k", "columns": ["k", "a", "b"], "multiline": True}
TIME = {"field": "a", "unit": "s"}
ADAPTER = ConfiguredAdapter({"primary": CSV, "foreign": {"format": "jsonl", "key": "k", "time": TIME}})
FIELD = st.text('a",\n\r é', max_size=5)


def written(rows: list[list[str]], end: str) -> bytes:
    out = io.StringIO(newline="")
    for row in rows:  # the writer leaves a bare carriage return without quotes
        quoting = csv.QUOTE_ALL if "\r" in "".join(row) else csv.QUOTE_MINIMAL
        csv.writer(out, lineterminator=end, quoting=quoting).writerow(row)
    return out.getvalue().encode()


@pytest.mark.parametrize(
    ("data", "final", "records"),
    [
        (b'a,b\n"x\ny",2\nc,d\n', False, [b"a,b", b'"x\ny",2', b"c,d"]),
        (b'a,b\n"x\ny",2', False, [b"a,b"]),
        (b'a,b\n"x\ny",2', True, [b"a,b", b'"x\ny",2']),
        (b'"x\ny"z,2\nk,"a\nb"\r\n', False, [b'"x', b'y"z,2', b'k,"a\nb"\r']),
        (b'"x\n1,2\n', False, []),
        (b'"x\n1,2\n', True, [b'"x', b"1,2"]),
        (b'5" pipe,"a\nb"\n', False, [b'5" pipe,"a\nb"']),
        (b'"x\n' + b"1,2\n" * 20, False, [b'"x', *[b"1,2"] * 20]),
        (b'"a\n""b\n\n","c\n"\nz\n', False, [b'"a\n""b\n\n","c\n"', b"z"]),
        (b'"a\nb"', False, []),
    ],
)
def test_records(data: bytes, final: bool, records: list[bytes]) -> None:
    marked = QuotedLines(QUOTED, 50).marked(data, final=final)
    assert len(marked) == len(data)
    pieces = marked.split(b"\n")
    if not final or marked.endswith(b"\n"):
        pieces.pop()
    assert [piece.replace(b"\xfe", b"\n") for piece in pieces] == records


def test_a_byte_that_would_be_a_mark_is_no_line_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'k1,"a\xfeb",1\nk2,"a\nb",2\n')
    (block,) = [block for block in scanned(follow(tmp_path)) if block.data]
    odd, good = block.data.split(b"\n")[:-1]
    assert ADAPTER.primary_keys(block.data, block.file) == [None, b"k2"]
    with pytest.raises(BadRecord, match="has a byte 0xFE or 0xFF, never used in UTF-8: name the encoding"):
        ADAPTER.primary_payload(odd, block.file)
    assert orjson.loads(ADAPTER.primary_payload(good, block.file) or b"")["a"] == "a\nb"
    envelope = Envelope(adapter=ConfiguredAdapter({"primary": CSV, "foreign": {**CSV, "id": "b", "time": TIME}}))
    assert orjson.loads(envelope.unreadable(good, block.file, 0, "why", at_ns=0))["record"] == 'k2,"a\nb",2'


def scanned(follower: Follower) -> list[Block]:
    follower.scan()
    return follower.poll(1 << 20, final=True)


def follow(directory: Path, positions: list[LogPosition] | None = None) -> Follower:
    return Follower(
        directory, has_header=False, framing=ADAPTER.primary_framing, positions=positions or (), max_record=2000
    )


def payloads(follower: Follower, *, final: bool = False) -> list[list[str]]:
    follower.scan()
    found = []
    while blocks := follower.poll(1 << 20, final=final):
        for block in blocks:
            for line in block.data.split(b"\n")[:-1]:
                payload = ADAPTER.primary_payload(line.removesuffix(b"\r"), block.file)
                assert payload is not None
                found.append(list(orjson.loads(payload).values()))
    return found


@given(
    st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=6),
    st.lists(st.integers(1, 30)),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(deadline=None, max_examples=150)
def test_what_the_csv_module_writes_is_read_back_however_it_arrives(
    tmp_path_factory: pytest.TempPathFactory, fields: list[tuple[str, str]], steps: list[int], end: str
) -> None:
    rows = [[f"k{n}", *pair] for n, pair in enumerate(fields)]
    data = written(rows, end)
    directory = tmp_path_factory.mktemp("q")
    follower = follow(directory)
    found = []
    done = 0
    for step in [*steps, len(data)]:
        with (directory / "a.csv").open("ab") as log:
            log.write(data[done : done + step])
        done += step
        found += payloads(follower)
        if step % 2:  # a restart
            positions = follower.positions()
            follower.close()
            follower = follow(directory, positions)
    assert found == rows
    follower.close()


@given(st.lists(st.text('a",\nb', max_size=12), max_size=12), st.integers(20, 60))
@settings(deadline=None, max_examples=300)
def test_any_text_is_cut_the_same_from_each_record_and_as_a_stream(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], limit: int
) -> None:
    """Reading may begin at any record, and the stream that starts anywhere in a log gives the same."""
    data = "\n".join(parts).encode()
    lines = QuotedLines(QUOTED, limit)
    marked = lines.marked(data, final=True)
    at = 0
    while (at := marked.find(b"\n", at) + 1) > 0:
        assert lines.marked(data[at:], final=True) == marked[at:]
    path = tmp_path_factory.mktemp("q") / "a.csv"
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoted_framing, "READ_BYTES", limit + 1)
        patch.setattr(quoted_framing, "MARK_SPACING_BYTES", 5)
        patch.setattr(quoted_framing, "MARKS_MAX", 3)
        source = open_anywhere(path, QUOTED, limit)
        assert source.read(0, len(data) + 1) == marked
        for at in range(0, len(data), 7):
            assert source.read(len(data) - at - 1, 9) == marked[len(data) - at - 1 :][:9]
        source.close()


def test_a_quote_that_is_never_closed_costs_its_line_only(tmp_path: Path) -> None:
    rows = b"".join(b"k%d,x,y\n" % n for n in range(2000))
    (tmp_path / "a.csv").write_bytes(b'k,"open,y\n' + rows)
    follower = follow(tmp_path)
    follower.scan()
    keys = [key for block in follower.poll(1 << 22) for key in ADAPTER.primary_keys(block.data, block.file)]
    assert keys == [None, *(b"k%d" % n for n in range(2000))]
    follower.close()
