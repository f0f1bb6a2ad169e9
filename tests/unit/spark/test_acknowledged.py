"""``photon spark problems`` and ``acknowledge``: rows of a report, and findings that remain accepted unchanged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from photon.cli.main import main
from photon.config.disk import RealDisk
from photon.spark.classes import Class
from photon.spark.problems import ProblemFilter, opened, rows
from photon.spark.verify.acknowledged import (
    NAME,
    Acknowledged,
    AcknowledgedDamaged,
    add_acknowledged,
    finding_key,
    kept_below,
    read_acknowledged,
)
from tests.unit.spark.recover.rows import lost, write_report

WHO = ("--who", "ana", "--why", "billed once")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    found = [
        lost(number, output_file=f"joined/east-1-{number % 2:06}.jsonl", output_offset=number) for number in range(60)
    ]
    found.append(lost(60, Class.DUPLICATED, event_id=b"\xff"))
    found.append(lost(61, Class.TORN))
    return write_report(tmp_path / "reports" / "day", found, files=3)


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["spark", *map(str, words)])


def listed(*words: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run("problems", *words, "-o", "json").stdout.splitlines()]


def test_rows_as_json_lines(report: Path) -> None:
    assert len(listed(report)) == 62
    assert len(listed(report, "--limit", "7")) == 7
    assert {row["class"] for row in listed(report, "--class", "torn", "--class", "duplicated")} == {
        "torn",
        "duplicated",
    }
    assert len(listed(report, "--file", "joined/east-1-000001.jsonl.gz")) == 30
    assert len(listed(report, "--file", "east-1-000001.jsonl")) == 30
    assert len(listed(report, "--file", "1.jsonl")) == 0, "a name, not any end of one"
    [one] = listed(report, "--event", "e7")
    assert (one["event_id"], one["event_time"], one["output_offset"]) == ("e7", "1970-01-01T00:00:07Z", 7)
    assert one["evidence"] == {"written_token": f"{107:016x}", "records": 1}
    [odd] = listed(report, "--class", "duplicated")
    assert odd["event_id_raw_base64"] == "/w=="
    assert listed(report, "--event", "nobody") == []


def test_rows_as_a_table(report: Path) -> None:
    shown = run("problems", report)
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "12 more: --limit 0 shows all")
    assert "more:" not in run("problems", report, "--limit", "0").stdout
    assert run("problems", report, "--event", "nobody").stdout == f"{report}: no findings match\n"
    assert run("problems", report.parent).exit_code == 2


def test_a_finding_is_acknowledged_once(report: Path) -> None:
    kept = kept_below(report.parent, "clicks")
    shown = run("acknowledge", report, "--event", "e7", "--class", "lost-cleared", "--dry-run")
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (0, "1 would be acknowledged, 0 already were")
    assert not (kept / NAME).exists()
    for before in (0, 1):
        done = run("acknowledge", report, "--event", "e7", "--class", "lost-cleared", *WHO)
        assert done.stdout.splitlines()[-1] == f"{1 - before} acknowledged, {before} already were", done.output
    [one] = read_acknowledged(RealDisk(), kept)
    assert (one.kind, one.event, one.who, one.why) == ("lost-cleared", "e7", "ana", "billed once")
    done = run("acknowledge", report, "--all-of", "lost-cleared", *WHO, "-o", "json")
    assert (len(json.loads(done.stdout)["acknowledged"]), json.loads(done.stdout)["before"]) == (59, 1)
    told = json.loads(run("acknowledge", report, "--list", "-o", "json").stdout)["acknowledged"]
    assert len(told) == len({each["finding"] for each in told}) == 60


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--event", "e7", "--class", "torn", *WHO), "has no finding torn of event e7"),
        (("--event", "e7", *WHO), "give --event ID --class CLASS"),
        (("--event", "e7", "--class", "torn"), "--who and --why"),
        (("--all-of", "torn", "--list"), "give --event ID --class CLASS"),
    ],
)
def test_what_is_refused(report: Path, words: tuple[str, ...], why: str) -> None:
    refused = run("acknowledge", report, *words)
    assert (refused.exit_code, why in refused.output) == (2, True), refused.output


def test_a_url_needs_the_directory_that_verifications_use() -> None:
    refused = run("acknowledge", "s3://bucket/report", "--list")
    assert (refused.exit_code, "--work" in refused.output) == (2, True)


def test_another_class_place_or_evidence_is_another_finding(tmp_path: Path) -> None:
    one = lost(1, output_file="joined/a-000001.jsonl", output_offset=5)
    others = [
        replace(one, kind=Class.DUPLICATED),
        replace(one, output_offset=6),
        replace(one, datacentre="west"),
        replace(one, slot="a"),
        replace(one, digest=b"x" * 16),
    ]
    same = replace(one, log="c.log.1", generation=3)
    with opened(write_report(tmp_path / "report", [one, *others, same])) as report:
        first, *rest, last = [finding_key(row) for row in rows(report, ProblemFilter())]
    assert len({first, *rest}) == 1 + len(others)
    assert last == first


def test_the_file_outlives_a_cut_and_is_refused_when_damaged(tmp_path: Path) -> None:
    disk, one = RealDisk(), Acknowledged("f", "torn", "-", "-", "ana", "known", "2026-11-21T03:00:00Z")
    assert read_acknowledged(disk, tmp_path) == []
    add_acknowledged(disk, tmp_path, [one])
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes() + b'{"finding":"g"')
    assert read_acknowledged(disk, tmp_path) == [one]
    add_acknowledged(disk, tmp_path, [one])
    assert read_acknowledged(disk, tmp_path) == [one, one]
    path.write_bytes(b"{}\n")
    with pytest.raises(AcknowledgedDamaged, match="is damaged"):
        read_acknowledged(disk, tmp_path)
