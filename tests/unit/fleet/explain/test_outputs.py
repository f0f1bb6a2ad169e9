"""Records are found in growing, rolled and compressed files, published or not, and never in another's payload."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.fleet.explain import outputs
from photon.fleet.explain.evidence import Evidence, Record
from photon.fleet.explain.outputs import SLACK_NS, search_place
from photon.fleet.explain.question import Budget, Question, question_of
from photon.outputs import OutputPlace
from photon.outputs.log.format import Durable, name_of

SLOT = "east-1"


def line(event_id: str, offset: int, *, foreign: str = "{}") -> bytes:
    text = (
        f'{{"event_id":"{event_id}","key":"k","event_time_ns":7,"foreign":{foreign},"primary":{{}},'
        f'"source":{{"file":"c.log","offset":{offset}}},"primary_source":{{"file":"q.log","offset":3}},'
        f'"joined_at":"2026-11-22T00:00:00.000000Z","token":"0000010000000002"}}\n'
    )
    return text.encode()


class Site:
    """An output with one slot, written by hand as joiners do."""

    def __init__(self, base: Path) -> None:
        self.place = OutputPlace(base / "out", base / "state")
        self.state = base / "state" / "slots" / SLOT
        self.state.mkdir(parents=True)
        self.lengths: dict[str, int] = {}
        self.publish()

    def write(self, number: int, data: bytes, *, published: int | None = None, kind: str = "joined") -> Path:
        path = self.place.output / name_of(kind, SLOT, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.lengths[name_of(kind, SLOT, number)] = len(data) if published is None else published
        self.publish()
        return path

    def publish(self) -> None:
        (self.state / "durable.json").write_bytes(msgspec.json.encode(Durable(SLOT, self.lengths)))

    def clear(self, name: str, length: int) -> None:
        path = self.state / "verifier" / "cleared.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.encode({"version": 1, "files": {name: length}}))

    def finish(self, number: int) -> None:
        """As a final file."""
        name = name_of("joined", SLOT, number)
        path = self.place.output / name
        data = path.read_bytes()
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
        path.unlink()
        del self.lengths[name]
        entry = {"version": 1, "file": f"{name}.gz", "uncompressed_bytes": len(data)}
        with open(self.state / "manifest.jsonl", "ab") as manifest:
            manifest.write(msgspec.json.encode(entry) + b"\n")
        self.publish()

    def search(self, question: Question, seconds: float = 60.0) -> Evidence:
        budget = Budget(seconds, lambda: 0.0 if seconds else 1.0)
        return search_place(RealDisk(), self.place, question, budget)

    def one(self, text: str) -> Record:
        (record,) = self.search(question_of(text)).records
        return record


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_durable_cleared_and_neither(site: Site) -> None:
    first, second, third = (line(f"id{n}", n) for n in range(3))
    site.write(1, first + second + third, published=len(first + second))
    site.clear(name_of("joined", SLOT, 1), len(first))
    found = [site.one(f"id{n}") for n in range(3)]
    assert [(each.durable, each.cleared) for each in found] == [(True, True), (True, False), (False, False)]
    assert [each.offset for each in found] == [0, len(first), len(first + second)]
    assert found[1].length == len(second)
    assert (found[0].key, found[0].event_time_ns, found[0].token) == (b"k", 7, "0000010000000002")
    assert (found[0].source_file, found[0].primary_file, found[0].primary_offset) == ("c.log", "q.log", 3)


def test_final_files_are_cleared(site: Site) -> None:
    site.write(1, line("old", 0) + line("gone", 1))
    site.finish(1)
    site.write(2, line("new", 2))
    record = site.one("gone")
    assert (record.file, record.durable, record.cleared) == (f"joined/{SLOT}-000001.jsonl", True, True)
    assert record.offset == len(line("old", 0))


def test_the_place_of_a_record_finds_it(site: Site) -> None:
    site.write(1, line("a", 10) + line("b", 100))
    assert site.one("c.log:10").event_id == b"a"
    assert not site.search(question_of("c.log:1")).records


def test_another_events_payload_is_not_taken_for_it(site: Site) -> None:
    site.write(1, line("other", 0, foreign='{"event_id":"wanted"}'))
    assert not site.search(question_of("wanted")).records
    site.write(2, line("wanted", 1))
    assert site.one("wanted").source_offset == 1


def test_lines_that_are_cut_by_chunks_are_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "CHUNK_BYTES", 11)
    lines = [line(f"id{n}", n) for n in range(20)]
    site.write(1, b"".join(lines))
    assert [site.one(f"id{n}").offset for n in range(20)] == [sum(map(len, lines[:n])) for n in range(20)]


def test_an_unknown_id_says_what_was_searched(site: Site) -> None:
    site.write(1, line("a", 0))
    site.write(1, b"", kind="unmatched")
    evidence = site.search(question_of("nobody"))
    assert not evidence.records
    (searched,) = evidence.searched
    assert (searched.what, searched.files, searched.why) == (f"output of {SLOT}", 2, "")
    assert searched.bytes == len(line("a", 0))


def test_a_search_that_runs_out_of_time_says_so(site: Site) -> None:
    site.write(1, line("a", 0))
    (searched,) = site.search(question_of("a"), seconds=0.0).searched
    assert "not searched completely within 0 s" in searched.why


def test_files_written_before_the_event_are_left_out(site: Site) -> None:
    site.write(1, line("a", 0))
    path = site.write(2, line("b", 1))
    os.utime(path, ns=(5_000, 5_000))
    (searched,) = site.search(question_of(f"10.0.0.1:1:{SLACK_NS // 1000 + 6}")).searched
    assert searched.files == 1
    (searched,) = site.search(question_of(f"10.0.0.1:1:{SLACK_NS // 1000 + 5}")).searched
    assert searched.files == 2


def test_damaged_output_is_named_and_the_rest_searched(site: Site) -> None:
    site.write(1, line("a", 0))
    site.finish(1)
    packed = site.place.output / f"joined/{SLOT}-000001.jsonl.gz"
    packed.write_bytes(b"no gzip at all")
    os.utime(packed, ns=(2**62, 2**62))
    site.write(2, line("b", 1))
    evidence = site.search(question_of("b"))
    assert [record.event_id for record in evidence.records] == [b"b"]
    assert "damaged" in evidence.searched[0].why


def test_an_unmatched_event_among_the_joined_ones_is_unmatched(site: Site) -> None:
    inline = (
        line("b", 1).replace(b'"foreign":', b'"reason":"why","foreign":').replace(b'"primary":{}', b'"primary":null')
    )
    site.write(1, line("a", 0) + inline)
    assert [(site.one(name).kind, site.one(name).reason) for name in "ab"] == [("joined", None), ("unmatched", "why")]
    assert site.one("b").file == f"joined/{SLOT}-000001.jsonl"
