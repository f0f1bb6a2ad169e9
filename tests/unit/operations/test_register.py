"""Output files as read for a new registration."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from photon.adapters.contract import LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.config.disk import RealDisk
from photon.idregistry.api import Answer, Digester, Kind
from photon.operations import register
from photon.operations.register import (
    OutputFile,
    OutputUnreadable,
    Registered,
    blocks,
    datacentre_files,
    output_files,
)
from photon.outputs.log.format import DamagedRange, damaged_bytes, retired_bytes
from photon.spark.backfill.known import BackfillJob, BackfillPaths, begun, remember

LINES = [b"line %d\n" % n for n in range(1000)]
DISK = RealDisk()
FIRST, SECOND = "joined/east-1-000001.jsonl", "joined/east-1-000002.jsonl"


class Output:
    """An output, and the state of one slot."""

    def __init__(self, root: Path) -> None:
        self.root, self.slots = root / "output", root / "state" / "slots"
        self.state = self.slots / "east-1"
        self.root.mkdir()
        self.state.mkdir(parents=True)

    def made(self, name: str, data: bytes = b"", root: Path | None = None) -> None:
        path = (root or self.root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    def published(self, lengths: dict[str, int], *, final: dict[str, int] | None = None) -> None:
        said = {"version": 1, "slot": "east-1", "files": lengths, "rolled": []}
        (self.state / "durable.json").write_text(json.dumps(said))
        lines = [{"version": 1, "file": f"{name}.gz", "uncompressed_bytes": n} for name, n in (final or {}).items()]
        (self.state / "manifest.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))

    def cleared(self, text: str) -> None:
        (self.state / "verifier").mkdir(exist_ok=True)
        (self.state / "verifier" / "cleared.json").write_text(text)

    def damaged(self, name: str, start: int, end: int) -> None:
        (self.state / "damaged.json").write_bytes(
            damaged_bytes("east-1", [DamagedRange(name, start, end, "why", "")])
        )

    def files(self) -> list[OutputFile]:
        return output_files(DISK, self.root, self.slots).found

    def read(self) -> list[tuple[bytes, bool]]:
        return [block for file in self.files() for block in blocks(DISK, file)]


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


def test_files_tell_their_slot_and_kind(output: Output) -> None:
    for name in (f"{FIRST}.gz", SECOND, "unmatched/east-2-1000000.jsonl", "joined/notes.txt", "late/a-000001.jsonl"):
        output.made(name)
    output.made(f"{SECOND}.gz")  # a crash while it was compressed
    assert [(each.name, each.slot, each.kind, bool(each.cleared)) for each in output.files()] == [
        (FIRST, "east-1", Kind.JOINED, True),
        (SECOND, "east-1", Kind.JOINED, False),
        ("unmatched/east-2-1000000.jsonl", "east-2", Kind.UNMATCHED, False),
    ]


@pytest.mark.parametrize("cleared", [0, 7, len(b"".join(LINES[:500])), len(b"".join(LINES))])
@pytest.mark.parametrize("block_bytes", [64, 4 << 20])
def test_a_plain_file_is_read_to_its_last_whole_line_and_split_where_it_was_cleared(
    output: Output, monkeypatch: pytest.MonkeyPatch, cleared: int, block_bytes: int
) -> None:
    monkeypatch.setattr("photon.operations.register.BLOCK_BYTES", block_bytes)
    output.made(FIRST, b"".join(LINES) + b"torn")
    output.published({FIRST: 7})
    output.cleared(json.dumps({"version": 1, "files": {FIRST: cleared}}))
    parts = output.read()
    assert b"".join(block for block, _ in parts) == b"".join(LINES)
    assert len(b"".join(block for block, was in parts if was)) == cleared
    assert all(block.endswith(b"\n") for block, _ in parts)


def test_final_and_compressed_files_were_cleared(output: Output) -> None:
    whole = b"".join(LINES)
    output.made(f"{FIRST}.gz", whole)
    output.made(SECOND, whole)
    output.published({}, final={SECOND: len(whole)})
    assert output.read() == [(whole, True)] * 2


@pytest.mark.parametrize("said", [None, "torn"])
def test_where_the_verifier_left_no_word_nothing_was_cleared(output: Output, said: str | None) -> None:
    output.made(FIRST, LINES[0])
    output.published({FIRST: 7})
    if said is not None:
        output.cleared(said)
    assert output.read() == [(LINES[0], False)]


@pytest.mark.parametrize("block_bytes", [4, 4 << 20])
def test_damaged_ranges_are_left_out_also_of_a_file_that_was_put_back(
    output: Output, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr("photon.operations.register.BLOCK_BYTES", block_bytes)
    output.made(FIRST, b"".join(LINES[:3]))
    output.published({FIRST: 21})
    output.damaged(FIRST, 7, 14)
    assert b"".join(block for block, _ in output.read()) == LINES[0] + LINES[2]
    output.damaged(FIRST, 0, 21)
    assert output.read() == []
    (output.root / FIRST).unlink()
    assert output.read() == []


def test_of_a_retired_slot_only_its_sealed_files_are_read_where_they_are(output: Output, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    output.made(FIRST, LINES[0] + LINES[1])  # the lost disk came back
    output.made(SECOND, LINES[2])
    output.made(FIRST, LINES[0] + LINES[1], copy)
    (output.state / "retired.json").write_bytes(retired_bytes("east-1", {FIRST: 7}, copy))
    assert [file.path for file in output.files()] == [copy / FIRST]
    assert output.read() == [(LINES[0], False)]


def test_a_published_file_that_is_gone_short_or_cut_is_refused(output: Output) -> None:
    output.published({FIRST: 14})
    with pytest.raises(OutputUnreadable, match=r"is gone, even as \.gz; mount or restore it"):
        output.files()
    output.made(FIRST, LINES[0])
    with pytest.raises(OutputUnreadable, match="has 7 bytes, but 14 were published"):
        output.read()
    (output.root / FIRST).unlink()
    whole = b"".join(LINES)
    output.published({}, final={FIRST: len(whole)})
    (output.root / f"{FIRST}.gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(OutputUnreadable, match=r"east-1-000001\.jsonl"):
        output.read()


def test_a_final_file_that_was_moved_away_is_told(output: Output) -> None:
    output.made(SECOND, LINES[0])
    output.published({SECOND: 7}, final={FIRST: 7})
    found = output_files(DISK, output.root, output.slots)
    assert [each.name for each in found.found] == [SECOND]
    assert [each.name for each in found.archived] == [FIRST]


def test_a_datacentre_has_the_outputs_of_its_backfills(output: Output, tmp_path: Path) -> None:
    def files(base: Path, datacentre: str = "east") -> list[Path]:
        state = output.slots.parent
        return [each.path for each in datacentre_files(DISK, base, datacentre, "clicks", output.root, state).found]

    for number, (datacentre, join) in enumerate([("east", "clicks"), ("west", "clicks"), ("east", "orders")]):
        other = tmp_path / f"backfill-{number}"
        job = BackfillJob(slot=f"backfill-{number}", datacentre=datacentre, join=join, from_ns=0, to_ns=1,
                          unmatched=False, boundary_ns=0)  # fmt: skip
        begun(DISK, BackfillPaths(other), job)
        remember(DISK, tmp_path, other, job)
        output.made(f"joined/backfill-{number}-000001.jsonl", LINES[0], other)
    output.made(FIRST)
    assert files(tmp_path) == [output.root / FIRST, tmp_path / "backfill-0/joined/backfill-0-000001.jsonl"]
    output.root.rename(tmp_path / "elsewhere")
    with pytest.raises(OutputUnreadable, match="the output of east is not there"):
        files(tmp_path)


def test_answers_are_counted() -> None:
    done = Registered()
    done.add(bytes([Answer.COMMITTED, Answer.DONE, Answer.TAKEN, Answer.BELOW_BOUNDARY, Answer.COMMITTED]))
    assert (done.registered, done.taken, done.too_old) == (3, 1, 1)


def test_an_unmatched_event_among_the_joined_ones_is_registered_as_unmatched(output: Output) -> None:
    events = [ForeignEvent(b"e%d" % n, bytes(16), n, b"k", b"r", LogFile("f"), n, 0) for n in range(3)]
    lines = Envelope().undone(Events.of(events), ["why"] * 3, token=7, at_ns=0, inline={0: b"{}", 2: b"{}"})
    lines[1] = lines[1].replace(b'"reason":"why",', b"")
    output.made("joined/a-000001.jsonl", b"".join(lines))
    [file] = output.files()
    [(refs, _)] = register._refs(DISK, file, Registered())
    requests = register._requests(refs, [0], np.arange(3), Digester(b"key", "clicks"), "east", file, False)
    [(_, request)] = requests
    assert request.kinds == bytes([Kind.UNMATCHED, Kind.JOINED, Kind.UNMATCHED])
