"""What a join on Spark refuses, and ends with: one line each, and nothing is changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from photon.adapters.logs.slices import Reading
from photon.config.disk import RealDisk
from photon.config.errors import PhotonError, UsageError
from photon.operations.spark_join import REDO, held
from photon.outputs.log.writer import LogWriter, NotOfThisState
from photon.spark import tasks
from photon.spark.pipeline.deciding import EventStoreSilent
from photon.spark.pipeline.driver import Driver
from photon.spark.pipeline.journal import (
    Commit,
    Decision,
    JoinOf,
    Journal,
    JournalDamaged,
    LogAt,
    Part,
    Plan,
    Reached,
    Result,
    Stretch,
)
from photon.spark.pipeline.part import Done, Fenced, RegistrySilent
from photon.spark.pipeline.run import Application
from photon.spark.pipeline.skipping import BatchUnfinished, put_skips
from photon.spark.pipeline.tasks import run_parts, told
from photon.spark.session import said_by_spark

OF = JoinOf("clicks", "east", b"rule")
DONE = Done(Decision(), Result())


def commit(number: int) -> Commit:
    return Commit(number=number, logs=[], waiting={}, whole=True, counts={})


def plan(number: int, *parts: Part) -> Plan:
    return Plan(number=number, incarnation=1, at_ns=1, first_read_ns=1, read_past_ns=0, parts=list(parts))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    made = Journal(RealDisk(), tmp_path / "east-spark" / "spark")
    made.prepare(OF)
    return made


# -- state -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("of", "said"),
    [
        (JoinOf("views", "east", b"rule"), "is the state of join clicks in datacentre east, not of views in east"),
        (JoinOf("clicks", "west", b"rule"), "not of clicks in west; name another state directory"),
        (JoinOf("clicks", "east", b"other"), "another key file or other rules for deriving id, key and time from a"),
    ],
)
def test_the_state_of_another_join_datacentre_key_or_id_rule(journal: Journal, of: JoinOf, said: str) -> None:
    journal.prepare(OF)
    with pytest.raises(UsageError, match=said):
        journal.prepare(of)
    journal.prepare(OF)


def test_a_journal_that_is_gone_though_its_slot_was_opened(journal: Journal, tmp_path: Path) -> None:
    journal.check_begun()
    with pytest.raises(JournalDamaged, match="nowhere: is missing, but its slot was opened before; restore it"):
        Journal(RealDisk(), tmp_path / "nowhere").check_begun()


def test_commits_that_are_lost(journal: Journal) -> None:
    journal.check_commits(-1)
    journal.put_plan(plan(0))
    journal.check_commits(-1)
    journal.put_commit(commit(0))
    journal.put_plan(plan(1))
    journal.check_commits(0)
    with pytest.raises(JournalDamaged, match="commits: ends with batch 0, but a later one is planned or published"):
        journal.check_commits(1)
    journal.put_plan(plan(2))  # whose predecessor's commit is gone
    with pytest.raises(JournalDamaged, match="ends with batch 0, but a later one"):
        journal.check_commits(0)
    (journal.directory / "commits" / "000000000").unlink()
    with pytest.raises(JournalDamaged, match="ends with batch -1, but a later one"):
        journal.check_commits(-1)


class DiesAfter(RealDisk):
    """Killed once it has put ``files`` files."""

    def __init__(self, files: int) -> None:
        self.files = files

    def create(self, path: Path, data: bytes) -> bool:
        if not self.files:
            raise InterruptedError
        self.files -= 1
        return super().create(path, data)


@pytest.mark.parametrize("files", range(4))
def test_a_skip_that_was_killed_is_ended_by_the_next_start(journal: Journal, tmp_path: Path, files: int) -> None:
    (tmp_path / "logs").mkdir()
    of_logs = (tmp_path / "logs", Reading(), [], time.time_ns)
    with pytest.raises(InterruptedError):
        put_skips(Journal(DiesAfter(files), journal.directory), *of_logs)
    driver: Any = SimpleNamespace(journal=journal, disk=journal.disk)
    assert Driver._incarnations(driver) == []
    if files:
        with pytest.raises(BatchUnfinished, match="batch 0 is unfinished; let the join finish it, then skip"):
            put_skips(journal, *of_logs)
    else:
        put_skips(journal, *of_logs)


def test_output_that_no_commit_names(tmp_path: Path) -> None:
    log = LogWriter(RealDisk(), tmp_path / "output", tmp_path / "state", "east-spark", ["joined"])
    log.load()
    log.expect_nothing("the state")
    file = tmp_path / "output" / "joined" / "east-spark-000001.jsonl"
    file.parent.mkdir(parents=True)
    file.touch()
    log.expect_nothing("the state")
    file.write_text("{}\n")
    with pytest.raises(NotOfThisState, match=r"joined/east-spark-000001\.jsonl: the state has written nothing yet"):
        log.expect_nothing("the state")


def test_a_slot_that_a_joiner_or_another_driver_has(tmp_path: Path) -> None:
    with (
        held(tmp_path / "a"),
        pytest.raises(UsageError, match="another process works on this slot; wait until it ends"),
    ):
        held(tmp_path / "a").__enter__()
    (tmp_path / "b" / REDO).mkdir(parents=True)
    with pytest.raises(UsageError, match="b: is the state of a joiner; give that joiner another name"):
        held(tmp_path / "b").__enter__()


# -- executors -------------------------------------------------------------------------------------------------------
def on_spark(monkeypatch: pytest.MonkeyPatch, ends: Sequence[Exception | None]) -> list[Done]:
    """The driver's result if tasks end like this; ``None``: they are done."""

    async def end(how: Exception | None) -> Done:
        if how is not None:
            raise how
        return DONE

    rows = [told(end(how)).column(0).to_pylist() for how in ends]
    monkeypatch.setattr(tasks, "frame", lambda *_: SimpleNamespace(collect=lambda: rows))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(setJobDescription=lambda said: None))
    return run_parts(spark, lambda *_: iter(()), b"", len(ends), "batch 1")


@pytest.mark.parametrize("kind", [RegistrySilent, EventStoreSilent])
def test_an_executor_that_does_not_reach_a_service_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[[str], PhotonError]
) -> None:
    """Spark does not try its task again: it would ask for minutes each time."""
    assert on_spark(monkeypatch, [None, None]) == [DONE, DONE]
    monkeypatch.setattr("photon.spark.pipeline.tasks.gethostname", lambda: "worker-3")
    with pytest.raises(PhotonError, match=r"^on worker-3: no answer$") as found:
        on_spark(monkeypatch, [None, kind("no answer"), kind("nor here")])
    assert type(found.value) is kind
    with pytest.raises(Fenced, match="newer"):
        on_spark(monkeypatch, [kind("no answer"), Fenced("newer")])


def test_an_executor_with_another_minor_version_of_python() -> None:
    said = "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11"
    raised = type("PythonException", (Exception,), {"__module__": "pyspark.errors.exceptions.captured"})
    lines = f"Job aborted\nTraceback (most recent call last):\npyspark.errors.PySparkRuntimeError: {said}\n"
    assert said in (said_by_spark(raised(lines)) or "")


# -- logs ------------------------------------------------------------------------------------------------------------
def test_a_log_that_is_gone_between_plan_and_reading_is_told_once_it_is_nowhere() -> None:
    log = LogAt("id", "a.log", b"", 0, True, 10, 70, 5, False, 1)
    part = Part([Stretch(log, 10, None, 1000)], [])
    left = Done(Decision(reached=[Reached("id", 10, b"", False, b"")]), Result())
    app: Any = object.__new__(Application)
    app.lost, app._paths, app._listed, said = [], {"id": "a.log.1"}, True, []
    app.say, app.driver, app._list_logs = said.append, SimpleNamespace(logs={}), lambda known: None
    app._tell_gone(plan(3, part), [left])
    assert (app.lost, app._listed) == ([], False)  # it was renamed: the next batch reads it
    app._paths = {}
    app._tell_gone(plan(3, part), [left])
    assert app.lost == said == ["a.log: is gone, and its last 60 bytes were never read; restore it"]
    read = Done(Decision(reached=[Reached("id", 70, b"", True, b"")]), Result())
    app._tell_gone(plan(3, part), [read])
    assert len(said) == 1
