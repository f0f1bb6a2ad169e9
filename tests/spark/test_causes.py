"""Damage to files and logs is reported once, and every readable line is still compared."""

from __future__ import annotations

import gzip
import html
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.dataset as ds
import pytest

from photon.joiner.verdicts import ABSENT_REASON
from photon.spark.verify.causes import Cause
from photon.spark.verify.verdict import InputFile
from tests.spark.small_deployment import SITES, Written, event_of
from tests.spark.test_nights import Nights, Verifier, made

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _final(nights: Nights, site: str, kind: str, block: int) -> Path:
    return nights.root / site / "output" / kind / f"{site}-1-{block + 1:06}.jsonl.gz"


def _wrong_checksum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-6] ^= 0xFF
    path.write_bytes(data)


def _changed(path: Path, old: bytes, new: bytes) -> str:
    """Changes the first record of a final file; its event."""
    data = gzip.decompress(path.read_bytes())
    line = data[: data.index(b"\n")]
    assert old in line
    path.write_bytes(gzip.compress(data.replace(old, new, 1)))
    return str(json.loads(line)["event_id"])


def test_causes_before_findings(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is planted in files of other hours: a block of three hours shares no cause with another."""
    nights = made(tmp_path, 7, days=1, clicks=480)
    _log_in_east_too(nights, "c-005.log")
    records = [each for each in nights.lines if each.kind in ("joined", "unmatched")]
    nights.write_outputs()
    verifier = Verifier(spark, nights, monkeypatch)
    assert verifier.night(1, name="clean").verdict.exit == 0
    inputs = (tmp_path / "clean" / "inputs.jsonl").read_bytes()
    logs = [each for each in msgspec.json.Decoder(InputFile).decode_lines(inputs) if each.what == "foreign"]
    verifier.places = [(each.datacentre, each.identity, each.bytes, each.path) for each in logs]
    expected, causes = _plant(nights, records)

    for name in ("planted", "again"):  # nothing becomes green because it was reported before
        found = verifier.night(1, name=name)
        problems = _problems(tmp_path / name)
        assert Counter((row["class"], row["event"]) for row in problems) == expected
        assert _summed(found.figures.causes) == causes
        assert found.verdict.exit == 3
        assert found.verdict.problems == expected.total() + sum(alone for _, alone in causes.values())

    told = {each.what: each for each in reversed(found.figures.causes)}
    _check_words(told, nights)
    said = json.loads((tmp_path / "again" / "verdict.json").read_bytes())["causes"]
    assert said == msgspec.to_builtins(found.figures.causes)
    shown = html.unescape((tmp_path / "again" / "report.html").read_text())
    assert all(each["command"] in shown for each in said)
    fields = [row["evidence"]["fields"] for row in problems if row["class"] == "wrongly-joined"]
    assert sorted(fields) == [["members"], ["reason"]]
    lost = {(row["datacentre"], row["evidence"]["cause"]) for row in problems if row["class"] == "lost-cleared"}
    assert len(lost) == 2
    assert all(site == "east" for site, _ in lost)

    # Fixed by the commands that the report names, as far as they do not repair events.
    for path in (told["joined/east-1-000001.jsonl.gz"], told["joined/west-1-000077.jsonl"]):
        _run(path.command)
    left = {(each.kind, each.what) for each in verifier.night(1, name="left").figures.causes}
    assert left == causes.keys() - {("checksum-wrong", "joined/east-1-000001.jsonl.gz"),
                                    ("file-unnamed", "joined/west-1-000077.jsonl")}  # fmt: skip


def _plant(nights: Nights, records: list[Written]) -> tuple[Counter[tuple[str, str]], dict[Any, tuple[int, bool]]]:
    """(class, event) of the findings, and (kind, what) of the causes with their events, and whether they
    are alone."""
    root = nights.root
    log = {event_of(each): json.loads(each.line) for each in records}
    blocks = {event: int(said["source"]["file"][2:5]) for event, said in log.items()}

    _wrong_checksum(_final(nights, "east", "joined", 0))
    cut = _final(nights, "east", "joined", 1)
    whole = gzip.decompress(cut.read_bytes()).splitlines()
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    left = _whole_lines(cut)
    manifest = root / "west" / "state" / "slots" / "west-1" / "manifest.jsonl"
    entries = manifest.read_text().splitlines(keepends=True)
    (stale,) = (each for each in entries if "joined/west-1-000003" in each)
    manifest.write_text("".join(each for each in entries if each != stale))
    copied = _final(nights, "west", "joined", 3)
    copied.with_name("west-1-000077.jsonl.gz").write_bytes(copied.read_bytes())
    reason = _changed(
        _final(nights, "west", "unmatched", 0), ABSENT_REASON.encode(), ABSENT_REASON.replace("has", "had").encode()
    )
    member = _changed(_final(nights, "west", "joined", 0), b',"token"', b',"campaign":"autumn","token"')
    gone = _final(nights, "east", "joined", 7)
    deleted = [json.loads(line)["event_id"] for line in gzip.decompress(gone.read_bytes()).splitlines()]
    gone.unlink()
    for site in SITES:
        (root / site / "clicks" / "c-004.log").unlink()
        (root / site / "queries" / "q-006.log").unlink()
    (root / "west" / "clicks" / "c-005.log").unlink()
    foreign = root / "east" / "clicks" / "c-003.log"
    foreign.with_name("c-003.log.gz").write_bytes(gzip.compress(foreign.read_bytes()))
    _wrong_checksum(foreign.with_name("c-003.log.gz"))
    foreign.unlink()

    lost = {json.loads(line)["event_id"] for line in whole[left:]}
    expected = Counter({("lost-cleared", event): 1 for event in [*lost, *deleted]})
    expected += Counter({("wrongly-joined", reason): 1, ("wrongly-joined", member): 1})
    expected["torn", ""] = 3
    groups = Counter[str]()
    for each in records:
        event = event_of(each)
        said, block = log[event], blocks[event]
        if event in lost or event in deleted:
            continue
        if block == 4:
            groups["all"] += 1
        elif block == 5 and each.site == "west":
            groups["west"] += 1
        elif each.kind == "joined" and said["primary_source"]["file"] == "q-006.log":
            groups["primary"] += 1
        else:
            continue
        expected["log-gone", event] += 1
    assert min(groups[name] for name in ("all", "west", "primary")) > 5, groups
    causes = {
        ("checksum-wrong", "joined/east-1-000001.jsonl.gz"): (0, False),
        ("file-damaged", "joined/east-1-000002.jsonl.gz"): (len(lost), False),
        ("file-gone", "joined/east-1-000008.jsonl.gz"): (len(deleted), False),
        ("file-unnamed", "joined/west-1-000003.jsonl"): (0, True),
        ("file-unnamed", "joined/west-1-000077.jsonl"): (0, True),
        ("log-gone", "c-004.log"): (groups["all"], False),
        ("log-gone", "c-005.log"): (groups["west"], False),
        ("log-gone", "q-006.log"): (groups["primary"], False),
        ("log-damaged", "c-003.log"): (0, True),
    }
    return expected, causes


def _summed(causes: list[Cause]) -> dict[Any, tuple[int, bool]]:
    """By (kind, what): some events of a log may be in another log, too, and form their own cause."""
    found: dict[Any, tuple[int, bool]] = {}
    for each in causes:
        found[each.kind, each.what] = found.get((each.kind, each.what), (0, False))[0] + each.events, each.alone
    return found


def _check_words(told: dict[str, Cause], nights: Nights) -> None:
    lines = gzip.decompress(_final(nights, "west", "joined", 3).read_bytes()).count(b"\n")
    stale = gzip.decompress(_final(nights, "west", "joined", 2).read_bytes()).count(b"\n")
    assert "checksum wrong, all " in told["joined/east-1-000001.jsonl.gz"].say
    assert f"{lines} lines: {lines} are copies of records in the output, 0 " in told["joined/west-1-000077.jsonl"].say
    assert f"{stale} lines: 0 are copies of records in the output, {stale} " in told["joined/west-1-000003.jsonl"].say
    assert "foreign log c-004.log was read by the dispatcher and is gone in every" in told["c-004.log"].say
    assert told["c-004.log"].datacentre == "east, west"
    assert "was read by the dispatcher and is gone in west only" in told["c-005.log"].say
    assert told["q-006.log"].say.startswith("primary log q-006.log ")
    assert "checksum wrong, all its lines are whole" in told["c-003.log"].say
    assert all(each.command for each in told.values())


def _log_in_east_too(nights: Nights, name: str) -> None:
    """West's log has no event that east lacks: deleted in west, each is still in east."""
    east, west = (nights.root / site / "clicks" / name for site in SITES)
    data, more = west.read_bytes(), b""
    for each in nights.lines:
        source = json.loads(each.line)["source"]
        wanted = (each.site, source["file"]) == ("west", name) and each.kind in ("joined", "unmatched")
        if wanted and event_of(each).encode() not in east.read_bytes():
            more += data[source["offset"] :].partition(b"\n")[0] + b"\n"
    with east.open("ab") as file:
        file.write(more)


def _whole_lines(path: Path) -> int:
    import zlib

    return zlib.decompressobj(31).decompress(path.read_bytes()).count(b"\n")


def _problems(report: Path) -> list[dict[str, Any]]:
    rows = ds.dataset(report / "problems", format="parquet", partitioning="hive").to_table().to_pylist()
    return [
        row | {"event": (row["event_id"] or b"").decode(), "evidence": json.loads(row["evidence"])} for row in rows
    ]


def _run(command: str) -> None:
    import subprocess

    subprocess.run(["bash", "-c", command], check=True, timeout=60, capture_output=True)
