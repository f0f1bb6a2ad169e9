"""Records of lost events are found in any file of an output."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.outputs.every_file import files_below
from photon.outputs.output_places import KINDS
from photon.spark.recover import written
from photon.spark.recover.written import WrittenAt, elsewhere, names_of, search
from tests.unit.spark.recover.rows import lost


def lines(*events: bytes) -> bytes:
    def named(event: bytes) -> dict[str, str]:
        try:
            return {"event_id": event.decode()}
        except UnicodeDecodeError:
            return {"event_id_raw_base64": base64.b64encode(event).decode()}

    return b"".join(json.dumps(named(each)).encode() + b"\n" for each in events)


def put(output: Path, name: str, data: bytes) -> Path:
    path = output / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_every_file_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(written, "IDS_AT_ONCE", at_once)
    forgotten = put(tmp_path, "joined/copy of the 3rd.jsonl", lines(b"x", b"e1") + b"no record\n" + lines(b"e2"))
    packed = gzip.compress(lines(b"\xff\xfe", b"e3"))
    rotten = put(tmp_path, "filtered/a-000001.jsonl.gz", packed[:-8] + b"rottenly")
    put(tmp_path, "late/a-000001.jsonl", lines(b"e4"))
    files = files_below(RealDisk(), tmp_path, ("joined", "filtered"))
    found = search(RealDisk(), files, [b"e1", b"e2", b"e3", b"e4", b"e5", b"\xff\xfe"])
    one, other = len(lines(b"x")), len(lines(b"x", b"e1")) + len(b"no record\n")
    assert {event: list(places) for event, places in found.items()} == {
        b"e1": [WrittenAt("joined/copy of the 3rd.jsonl", str(forgotten), one)],
        b"e2": [WrittenAt("joined/copy of the 3rd.jsonl", str(forgotten), other)],
        b"\xff\xfe": [WrittenAt("filtered/a-000001.jsonl", str(rotten), 0)],
        b"e3": [WrittenAt("filtered/a-000001.jsonl", str(rotten), len(lines(b"\xff\xfe")))],
    }
    assert names_of(found) == {"joined/copy of the 3rd.jsonl", "filtered/a-000001.jsonl"}


def test_nothing_is_read_where_nothing_is_sought(tmp_path: Path) -> None:
    put(tmp_path, "joined/a-000001.jsonl", lines(b"e1"))
    [file] = files_below(RealDisk(), tmp_path, KINDS)
    file.path.unlink()
    assert search(RealDisk(), [file], []) == {}
    assert search(RealDisk(), [file], [b"e1"]) == {}, "a file that cannot be read is left out"


def test_the_own_line_of_an_unmatched_event_is_no_other_record(tmp_path: Path) -> None:
    put(tmp_path, "unmatched/a-000001.jsonl", lines(b"x", b"e1"))
    own = replace(lost(1), output_file="unmatched/a-000001.jsonl", output_offset=len(lines(b"x")))
    found = search(RealDisk(), files_below(RealDisk(), tmp_path, KINDS), [b"e1"])
    assert elsewhere(found, own) is None
    assert elsewhere(found, lost(1)) == found[b"e1"][0]
    put(tmp_path, "joined/b-000001.jsonl", lines(b"e1"))
    again = search(RealDisk(), files_below(RealDisk(), tmp_path, KINDS), [b"e1"])
    told = elsewhere(again, own)
    assert told is not None
    assert told.name == "joined/b-000001.jsonl"
