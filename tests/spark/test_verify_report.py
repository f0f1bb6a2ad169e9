"""From sources to a report, and the days that are examined again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from photon.config.loader import load
from photon.spark import exports
from photon.spark.schemas import PROBLEM, REGISTRY
from photon.spark.sources import PipelineSources, RegistrySource, TimeRange, pipeline_sources
from photon.spark.verify.acknowledged import Acknowledged, finding_key, marked
from photon.spark.verify.figures import HOURS_A_DAY, hour_text
from photon.spark.verify.nights import Nights, chosen
from photon.spark.verify.reading import VerifyTask, registry_of_join
from photon.spark.verify.run import VerifyOutcome, kept_below, run
from photon.spark.verify.verdict import ReportRefused
from tests.integration.commands import photon
from tests.spark.small_deployment import HOUR_NS, Deployment, Entry, event_of, make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE_AT = "2026-11-21T03:00:00.000000Z"
SETS = {"ads_olist_funnel": "olist", "net_zeek_apt29": "zeek", "ob_lobster_aapl": "lobster"}


def task_of(deployment: Deployment) -> VerifyTask:
    sources = PipelineSources(
        deployment.source(), deployment.logs("clicks"), deployment.logs("queries"), deployment.outputs()
    )
    hours = [entry.time_ns // HOUR_NS for entry in deployment.registry.values()]
    day = min(hours) // HOURS_A_DAY * HOURS_A_DAY
    return VerifyTask(
        sources, "f" * 32, day - HOURS_A_DAY, max(hours) // HOURS_A_DAY * HOURS_A_DAY + HOURS_A_DAY, MADE_AT
    )


def test_a_report_and_the_next_ones(spark: SparkSession, tmp_path: Path) -> None:
    """Red means new: a loss that is acknowledged is green, and another one red."""
    deployment = make(tmp_path / "site", 5, clicks=120)
    report = tmp_path / "report"
    rejected = sum(each.kind == "rejected" for each in deployment.lines)
    assert rejected > 0
    said: list[str] = []
    first = run(spark, task_of(deployment), report, said.append)
    assert (first.verdict.exit, first.verdict.problems, first.verdict.reused) == (0, 0, [])
    assert first.verdict.counts == {"correct": len(deployment.registry) + rejected}
    verdict = json.loads((report / "verdict.json").read_bytes())
    assert (verdict["version"], verdict["deployment"], verdict["verdict"]) == (1, "f" * 32, "right")
    assert {each["what"] for each in verdict["inputs"]} == {"foreign", "primary", "output"}
    assert "Every event exactly once" in (report / "report.html").read_text()
    assert not list(tmp_path.glob("*.partial"))

    second = run(spark, task_of(deployment), report, said.append)
    assert said[-1] == "nothing has changed since the last report"
    assert second.verdict.counts == {"correct": len(deployment.registry)}
    assert len(second.verdict.reused) == 2

    lost, new = deployment.joined()[3:5]
    deployment.lines.remove(lost)
    deployment.write_outputs()
    third = run(spark, task_of(deployment), report, said.append)
    assert third.verdict.exit == 3
    assert third.verdict.counts["lost-unregistered"] == 1, "there is no export"
    assert len(third.verdict.reused) == 1, "the day before has not changed"
    rows = ds.dataset(report / "problems", format="parquet", partitioning="hive").to_table()
    assert rows["event_id"].to_pylist() == [event_of(lost).encode()]
    assert set(rows.column_names) == {column.split()[0] for column in PROBLEM.split(", ")} | {"day"}

    words = ("--event", event_of(lost), "--class", "lost-unregistered", "--who", "ana", "--why", "never billed")
    done = photon("spark", "acknowledge", str(report), *words)
    assert done.code == 0, done.err
    green = run(spark, task_of(deployment), report, print).verdict
    assert (green.exit, green.problems, green.acknowledged) == (0, 0, {"lost-unregistered": 1})
    assert green.counts["lost-unregistered"] == 1
    assert "No new problem" in (report / "report.html").read_text()
    assert _findings(report) == {event_of(lost): True}

    deployment.lines.remove(new)
    deployment.write_outputs()
    red = run(spark, task_of(deployment), report, print)
    assert (red.verdict.exit, red.verdict.problems, red.verdict.acknowledged) == (3, 1, {"lost-unregistered": 1})
    assert [each.event for each in red.figures.examples] == [event_of(new)]
    assert _findings(report) == {event_of(lost): True, event_of(new): False}

    deployment.lines += [lost, new]
    deployment.write_outputs()
    assert run(spark, task_of(deployment), report, print).verdict.exit == 0


def _findings(report: Path) -> dict[str, bool]:
    rows = ds.dataset(report / "problems", format="parquet").to_table().to_pylist()
    return {row["event_id"].decode(): row["acknowledged"] for row in rows}


def test_findings_are_known_by_the_same_digest_with_and_without_spark(spark: SparkSession) -> None:
    names = [column.split()[0] for column in PROBLEM.split(", ") if not column.startswith("acknowledged")]
    found = {"digest": b"\x0f" * 16, "class": "duplicated", "datacentre": "east", "output_file": "joined/ä.jsonl",
             "output_offset": 7, "evidence": '{"why":"\\u00e4"}', "log": "c.log", "offset": 3}  # fmt: skip
    rows = [dict.fromkeys(names) | found, dict.fromkeys(names) | found | {"digest": None, "output_file": None}]
    kinds = ", ".join(column for column in PROBLEM.split(", ") if not column.startswith("acknowledged"))
    problems = spark.createDataFrame([tuple(row[name] for name in names) for row in rows], kinds)
    for row in rows:
        known = [Acknowledged(finding_key(row), "", "", "", "", "", "")]
        told = {
            each["digest"] and bytes(each["digest"]): each["acknowledged"]
            for each in marked(problems, known).collect()
        }
        assert told == {each["digest"]: each is row for each in rows}


def test_a_day_that_was_not_looked_at_is_not_right_and_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    deployment, report = make(tmp_path / "site", 7, clicks=60), tmp_path / "report"
    kept, lines, deployment.lines = kept_below(tmp_path, "clicks"), deployment.lines, []
    deployment.write_outputs()

    def night(*, days: int = 1, **more: Any) -> VerifyOutcome:
        """Verifies a night; all but the first one choose where to start."""
        task = task_of(deployment)
        begin, end = task.from_hour + HOURS_A_DAY, task.from_hour + HOURS_A_DAY * (days + 1)
        taken = chosen(begin if first else None, end, end, Nights.known(kept), [])
        for name, value in (more | {"from_hour": taken.begin, "to_hour": taken.end}).items():
            setattr(task, name, value)
        return run(spark, task, report, print)

    first = True
    held = night(places_of=("east", "west"), waited_before_ns=1 << 62)
    assert (held.verdict.exit, held.verdict.verdict) == (4, "not-judged")
    events = held.verdict.counts["pending"]
    assert held.verdict.counts == {"pending": events}
    assert held.verdict.unjudged == [
        f"{events} of {events} events are pending",
        *(f"{name}: a.log and 1 more: not read to the end, last written before {hour_text((1 << 62) // HOUR_NS)}"
          for name in ("east", "west")),
    ]  # fmt: skip
    assert "exactly once" not in (report / "report.html").read_text().lower()

    first, deployment.lines = False, lines
    deployment.write_outputs()
    joined = night()
    assert (joined.verdict.exit, joined.verdict.counts) == (0, {"correct": events}), "the day was judged again"
    assert [row.usual for row in joined.figures.coverage] == [None, None], "no day before is closed"

    usual = {row.datacentre: row.events for row in joined.figures.coverage}
    quiet = night(days=2)
    assert (quiet.verdict.begin, quiet.verdict.exit) == (hour_text(quiet.figures.to_hour - HOURS_A_DAY), 4)
    day = quiet.verdict.begin[:10]
    told = [f"{day}: {name}: 0 events, usually {usual[name]}" for name in usual]
    assert quiet.verdict.unjudged == told
    (tmp_path / "site" / "west" / "clicks").rename(tmp_path / "away")
    (tmp_path / "site" / "west" / "clicks").mkdir()
    gone = night(days=2).verdict
    assert gone.begin == quiet.verdict.begin, "the day is not closed, and comes again"
    assert {"west: no foreign file exists, but earlier nights had some", *told} == {*gone.unjudged}
    (tmp_path / "site" / "west" / "clicks").rmdir()
    (tmp_path / "away").rename(tmp_path / "site" / "west" / "clicks")
    right = night(days=2, allow_empty=True)
    assert (right.verdict.exit, right.figures.headline()) == (0, "0 events in the logs, nothing to judge")
    task = task_of(deployment)
    task.from_hour, task.to_hour = right.figures.to_hour, right.figures.to_hour + HOURS_A_DAY

    def refused(directory: Path) -> None:
        raise ReportRefused(f"{directory}: is not taken")

    with pytest.raises(ReportRefused):
        run(spark, task, report, print, refused)
    assert Nights.known(kept).first_open() == task.from_hour, "closed are only days whose report is there"


def test_what_is_no_report_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    with pytest.raises(ReportRefused, match="not a report"):
        run(spark, task_of(make(tmp_path / "site", 1, clicks=5)), tmp_path / "photos", print)
    assert (tmp_path / "photos" / "a.jpg").exists()


def test_ids_of_other_joins_stand_in_the_same_registry(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [Entry(b"d" * 16, 1, "01", "joined", site).row() for site in ("east", "views-east")]
    unknown = [*entries[0][:10], None, None, None]
    frame = spark.createDataFrame([*entries, tuple(unknown)], REGISTRY)
    monkeypatch.setattr(exports, "registry", lambda *_, **__: frame)
    task = task_of(make(tmp_path, 1, clicks=5))
    task.registry, task.others = RegistrySource(directory="-"), ("views-east",)
    found = registry_of_join(spark, task, TimeRange())
    assert found is not None
    assert [row["datacentre"] for row in found.collect()] == ["east", None]


@pytest.mark.skipif("PHOTON_TEST_DATA" not in os.environ, reason="PHOTON_TEST_DATA names no data sets")
@pytest.mark.parametrize("name", SETS)
def test_real_logs_verify_clean(spark: SparkSession, tmp_path: Path, name: str) -> None:
    data = Path(os.environ["PHOTON_TEST_DATA"]) / name
    assert data.is_dir()
    task = _joined(data, tmp_path, SETS[name])
    found = run(spark, task, tmp_path / "report", print)
    assert found.verdict.problems == 0, found.figures.examples
    assert found.verdict.counts["correct"] > 100


def _joined(data: Path, tmp_path: Path, config: str) -> VerifyTask:
    """Results of ``photon join`` for a data set, as sources."""
    example = Path(__file__).parents[2] / "config" / "examples" / f"{config}.toml"
    primary, foreign, out = data / "primary", data / "foreign", tmp_path / "out"
    sides = ("--primary", primary, "--foreign", foreign, "--output", out, "--config", example)
    done = photon("join", "--once", "--quiet", "--max-rejected", "1000000", *sides, timeout=200)
    assert done.code == 0, done.err
    text = example.read_text() + (
        f'\n[datacentre.local]\njoin = "{_join_name(example)}"\nprimary = "{primary}"\nforeign = "{foreign}"\n'
        f'output = "{out}"\nstate = "{out / ".photon"}"\naddress = "127.0.0.1:1"\n'
        ""
    )
    deployment = example.with_name("x.toml").name
    file = tmp_path / deployment
    file.write_text(f'key_file = "{out / ".photon" / "key"}"\n' + text)
    settings = load(file, environment={})
    sources = pipeline_sources(settings, example.parent, _join_name(example), window=TimeRange())
    return VerifyTask(sources, "f" * 32, 0, 24 * 365 * 80, MADE_AT)


def _join_name(example: Path) -> str:
    return next(iter(load(example, environment={}).join))
