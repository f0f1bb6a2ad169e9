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
from photon.idregistry.api import Answer, Digester, Kind
from photon.operations import register
from photon.operations.register import Registered, blocks, cleared_lengths, output_files

LINES = [b"line %d\n" % n for n in range(1000)]


def made(root: Path, name: str, data: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)


def test_files_tell_their_slot_and_kind(tmp_path: Path) -> None:
    made(tmp_path, "joined/east-1-000001.jsonl.gz", b"")
    made(tmp_path, "joined/east-1-000002.jsonl", b"")
    made(tmp_path, "joined/east-1-000002.jsonl.gz", b"")  # a crash while it was compressed
    made(tmp_path, "unmatched/east-2-000001.jsonl", b"")
    made(tmp_path, "joined/notes.txt", b"")
    made(tmp_path, "late/east-1-000001.jsonl", b"")
    found = [(each.name, each.slot, each.kind, each.compressed) for each in output_files(tmp_path)]
    assert found == [
        ("joined/east-1-000001.jsonl", "east-1", Kind.JOINED, True),
        ("joined/east-1-000002.jsonl", "east-1", Kind.JOINED, False),
        ("unmatched/east-2-000001.jsonl", "east-2", Kind.UNMATCHED, False),
    ]


@pytest.mark.parametrize("cleared", [0, 7, len(b"".join(LINES[:500])), len(b"".join(LINES))])
@pytest.mark.parametrize("block_bytes", [64, 4 << 20])
def test_a_plain_file_is_read_to_its_last_whole_line_and_split_where_it_was_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleared: int, block_bytes: int
) -> None:
    monkeypatch.setattr("photon.operations.register.BLOCK_BYTES", block_bytes)
    made(tmp_path, "joined/a-000001.jsonl", b"".join(LINES) + b"torn")
    [file] = output_files(tmp_path)
    parts = list(blocks(file, cleared))
    assert b"".join(block for block, _ in parts) == b"".join(LINES)
    assert len(b"".join(block for block, was in parts if was)) == cleared
    assert all(block.endswith(b"\n") for block, _ in parts)


def test_a_compressed_file_was_cleared(tmp_path: Path) -> None:
    made(tmp_path, "joined/a-000001.jsonl.gz", b"".join(LINES))
    [file] = output_files(tmp_path)
    assert list(blocks(file, 0)) == [(b"".join(LINES), True)]


def test_where_the_verifier_left_no_word_nothing_was_cleared(tmp_path: Path) -> None:
    assert cleared_lengths(tmp_path) == {}
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "cleared.json").write_text('{"version":1,"files":{"joined/a-000001.jsonl":9}}')
    assert cleared_lengths(tmp_path) == {"joined/a-000001.jsonl": 9}
    (tmp_path / "verifier" / "cleared.json").write_text("torn")
    assert cleared_lengths(tmp_path) == {}


def test_what_the_manifest_lists_was_cleared(tmp_path: Path) -> None:
    (tmp_path / "verifier").mkdir()
    (tmp_path / "verifier" / "cleared.json").write_text('{"version":1,"files":{"joined/a-000003.jsonl":9}}')
    listed = [{"file": "joined/a-000001.jsonl.gz", "uncompressed_bytes": 5}]
    listed += [{"file": "joined/a-000002.jsonl", "uncompressed_bytes": 7}]
    lines = [json.dumps({"version": 1, **each}) + "\n" for each in listed]
    (tmp_path / "manifest.jsonl").write_text("".join(lines))
    assert cleared_lengths(tmp_path) == {
        "joined/a-000001.jsonl": 5,
        "joined/a-000002.jsonl": 7,
        "joined/a-000003.jsonl": 9,
    }
    (tmp_path / "manifest.jsonl").write_text("damaged\n")
    assert cleared_lengths(tmp_path) == {"joined/a-000003.jsonl": 9}


def test_answers_are_counted() -> None:
    done = Registered()
    done.add(bytes([Answer.COMMITTED, Answer.DONE, Answer.TAKEN, Answer.BELOW_BOUNDARY, Answer.COMMITTED]))
    assert (done.registered, done.taken, done.too_old) == (3, 1, 1)


def test_an_unmatched_event_among_the_joined_ones_is_registered_as_unmatched(tmp_path: Path) -> None:
    events = [ForeignEvent(b"e%d" % n, bytes(16), n, b"k", b"r", LogFile("f"), n, 0) for n in range(3)]
    lines = Envelope().undone(Events.of(events), ["why"] * 3, token=7, at_ns=0, inline={0: b"{}", 2: b"{}"})
    lines[1] = lines[1].replace(b'"reason":"why",', b"")
    made(tmp_path, "joined/a-000001.jsonl", b"".join(lines))
    [file] = output_files(tmp_path)
    [(refs, _)] = register._refs(file, 0, Registered())
    requests = register._requests(refs, [0], np.arange(3), Digester(b"key", "clicks"), "east", file, False)
    [(_, request)] = requests
    assert request.kinds == bytes([Kind.UNMATCHED, Kind.JOINED, Kind.UNMATCHED])
