"""One file's bytes by uncompressed offset, in any form of the file."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.outputs import content
from photon.outputs.content import FileContent, OutputMissing

DATA = b"".join(b'{"line":%d}\n' % (n * n) for n in range(500))
STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "back", "plain", "final", "members"]), st.integers(0, 900)), max_size=30
)


AT_THE_END = [("final", 0), ("read", 0), ("members", 4), ("read", 1)]


@given(
    start=st.integers(0, len(DATA) + 10),
    steps=STEPS,
    chunk=st.sampled_from([40, 300, content.COMPRESSED_CHUNK_BYTES]),
    level=st.sampled_from([0, 1, 9]),
)
@example(start=len(DATA), steps=AT_THE_END, chunk=content.COMPRESSED_CHUNK_BYTES, level=9)
@example(start=len(DATA), steps=[*AT_THE_END, ("final", 0), ("read", 1)], chunk=40, level=9)  # and shorter again
@example(start=0, steps=[("final", 0), ("read", 9), ("members", 4), ("read", 900)], chunk=40, level=9)
@example(start=0, steps=[("final", 0), ("read", 9), ("members", 4), ("read", 900)], chunk=40, level=0)
@example(start=7351, steps=[("final", 0), ("read", 0), ("members", 1), ("read", 185)], chunk=40, level=0)  # no shift
@example(start=25, steps=[("members", 67), ("read", 0), ("members", 65), ("read", 41)], chunk=40, level=0)
@example(start=0, steps=[("final", 0), ("read", 0), ("plain", 0), ("read", 3)], chunk=40, level=0)  # plain again
@settings(max_examples=150, deadline=None)
def test_it_goes_on_where_it_was_whatever_becomes_of_the_file(
    start: int, steps: list[tuple[str, int]], chunk: int, level: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "COMPRESSED_CHUNK_BYTES", chunk)
        path = Path(directory) / "s0-000001.jsonl"
        final = path.with_name(path.name + ".gz")
        path.write_bytes(DATA)
        reading, at, last = FileContent(RealDisk(), path, start), start, b""
        for step, number in steps:
            if step == "read":
                last = reading.read(number)
                assert last == DATA[at : at + number]
                at += len(last)
            elif step == "back":
                given_back = last[len(last) - min(number, len(last)) :]
                reading.give_back(given_back)
                at, last = at - len(given_back), last[: len(last) - len(given_back)]
            elif step == "plain":
                path.write_bytes(DATA)
                final.unlink(missing_ok=True)
            else:
                cut = number if step == "members" else 0
                final.write_bytes(b"".join(gzip.compress(part, level) for part in (DATA[:cut], DATA[cut:])))
                path.unlink(missing_ok=True)
            assert reading.at == at
            reading.check()


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_the_compressed_bytes_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(content, "COMPRESSED_CHUNK_BYTES", chunk)
    monkeypatch.setattr(content, "SKIP_BYTES", 13)
    path = tmp_path / "f.jsonl"
    data = DATA + b"x" * 100_000
    (tmp_path / "f.jsonl.gz").write_bytes(gzip.compress(data))
    for start in (0, 1, 5000, len(data)):
        reading = FileContent(RealDisk(), path, start)
        found = b""
        while part := reading.read(997):
            found += part
        assert found == data[start:]


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    with pytest.raises(OutputMissing, match="is gone"):
        FileContent(RealDisk(), path, 0).read(1)
    final = tmp_path / "f.jsonl.gz"
    whole = gzip.compress(DATA)
    for at in range(20, len(whole) - 4, 97):
        final.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        reading = FileContent(RealDisk(), path, 0)
        with pytest.raises(OutputMissing, match=f"{final}: is (damaged|cut short)"):
            _all(reading)
    for cut in (1, 8, 9, 300):
        final.write_bytes(whole[:-cut])
        reading = FileContent(RealDisk(), path, 0)
        assert DATA.startswith(reading.read(len(DATA)))
        with pytest.raises(OutputMissing, match=f"{final}: is cut short"):
            reading.check()
    final.write_bytes(whole)
    reading = FileContent(RealDisk(), path, 0)
    for size in (10, 0, len(DATA) - 10):
        reading.read(size)
        reading.check()
    assert reading.read(1) == b""


def _all(reading: FileContent) -> None:
    while reading.read(500):
        pass
    reading.check()
