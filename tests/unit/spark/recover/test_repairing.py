"""A repair against the registry's real state machine, killed anywhere and restarted."""

from __future__ import annotations

import contextlib
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.outputs.every_file import FoundFile, files_below
from photon.outputs.output_places import KINDS
from photon.outputs.published import read_damaged
from photon.spark.classes import Class
from photon.spark.recover import repairing
from photon.spark.recover.journal import RegistrySilent, RepairProgress, write_journal
from photon.spark.recover.marks import SlotMarks
from photon.spark.recover.planning import EarlierRepairs, ReportedProblem
from photon.spark.recover.repairing import DAMAGE, LOSSES, UNMATCHED, Repairing, RepairRules
from photon.spark.recover.repairs import Repairs
from photon.spark.recover.report import open_report
from photon.spark.recover.unseen import SeenOutputs, SeenSlot
from tests.kit.clock import ManualClock
from tests.unit.idregistry.model import Row, reopen
from tests.unit.outputs.helpers import WrittenSlot
from tests.unit.spark.recover.rows import DEPLOYMENT, lost, write_report
from tests.unit.spark.recover.world import Killed, World, digest, time_of

OWNER = 1
RETENTION_NS = 10**18
EXPORTED_NS = 5 * 10**17
YOUNG_NS = EXPORTED_NS + 1
OLD_NS = RETENTION_NS + 2 * repairing.MARGIN_NS  # now, when the boundary may be anywhere


class QuickDisk(RealDisk):
    """Does not wait for the disk: only the process is killed here."""

    def replace(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)

    def make_dir(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)


class Site:
    """A report of n events in all states, and the world it describes."""

    def __init__(self, directory: Path, seed: int, ids: int, faults: float) -> None:
        self.draw = random.Random(seed)
        self.world = World(self.draw, faults, ids=ids)
        self.directory = directory
        self.clock = ManualClock(YOUNG_NS)
        self.findings = [self._finding(number) for number in range(ids)]
        self.report = write_report(
            directory / "report", [each for each in self.findings if each], exported_ns=EXPORTED_NS, files=3
        )
        self.repairs = Repairs(QuickDisk(), directory / "repairs")
        self.seen = SeenOutputs("photon.toml", {"east": {"a": SeenSlot(1, 0, "out", False)}}, {"east": "state"}, {})
        self.files_there: list[FoundFile] = []

    def _finding(self, number: int) -> ReportedProblem | None:
        row, shard = Row(number, OWNER, number), self.world.shard
        kind = self.draw.choice(("cleared", "owned", "unregistered", "unmatched", "fine"))
        if kind != "unregistered":
            shard.insert(row)
        if kind in ("cleared", "unmatched", "fine"):
            shard.clear(row)
        classes = {
            "cleared": (Class.LOST_CLEARED, "cleared"),
            "owned": (Class.LOST_OWNED, "owned"),
            "unregistered": (Class.LOST_UNREGISTERED, None),
            "unmatched": (Class.PRIMARY_EXISTS, "cleared"),
        }
        if kind == "fine":
            return None
        which, state = classes[kind]
        return ReportedProblem(
            which, digest(number), b"e%d" % number, time_of(number), None if state is None else row.token, state, 0,
            "east", "c.log", "unmatched/a-000001.jsonl", number, "a", row.token, True,
        )  # fmt: skip

    async def run(self, *, also_unmatched: bool = True, apply: bool = True) -> RepairProgress:
        rules, world = RepairRules(also_unmatched, RETENTION_NS, 1e12, apply), self.world
        report, told = open_report(RealDisk(), self.report, DEPLOYMENT), list[RepairProgress]()
        marks = SlotMarks(QuickDisk(), {}, {}, "2026-11-28T00:00:00+00:00")
        return await Repairing(
            report,
            world,
            world,
            QuickDisk(),
            self.repairs,
            marks,
            self.seen,
            self.files_there,
            self.clock,
            rules,
            told.append,
        ).run()

    def files(self) -> set[str]:
        found = [*self.directory.glob("*"), *self.directory.glob("*/*")]
        return {each.relative_to(self.directory).as_posix() for each in found}

    def of(self, kind: Class) -> list[int]:
        numbers = enumerate(self.findings)
        return [number for number, each in numbers if each is not None and each.kind is kind]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repairing, "PAUSE_S", 0.0)
    monkeypatch.setattr(repairing, "BATCH_ROWS", 16)


async def test_each_loss_is_given_back_once(tmp_path: Path) -> None:
    site = Site(tmp_path, 1, 200, 0.0)
    progress = await site.run()
    site.world.live()
    counts = {**progress.counts[LOSSES], **progress.counts[UNMATCHED]}
    cleared, unmatched = site.of(Class.LOST_CLEARED), site.of(Class.PRIMARY_EXISTS)
    assert counts == {
        "lost-cleared": {"reopened": len(cleared)},
        "lost-owned": {"slot-down": len(site.of(Class.LOST_OWNED))},
        "lost-unregistered": {"replay": len(site.of(Class.LOST_UNREGISTERED))},
        "primary-exists": {"reopened": len(unmatched)},
    }
    assert progress.waiting_slots == {"a": len(site.of(Class.LOST_OWNED))}
    assert sum(each.events for each in progress.wanted) == len(site.of(Class.LOST_UNREGISTERED))
    assert set(site.world.written.values()) == {1}
    assert set(site.world.written) <= {*cleared, *unmatched}
    given_up = site.repairs.given_up_unmatched().to_pylist()
    assert sorted(row["output_offset"] for row in given_up) == unmatched
    assert {row["answer"] for row in given_up} == {"reopened"}
    assert await site.run() == progress  # nothing more is asked
    assert set(site.world.written.values()) == {1}


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, 2, 100, 0.0)
    applied = site.world.shard.index
    progress = await site.run(apply=False)
    assert site.world.shard.index == applied
    assert progress.counts[LOSSES]["lost-cleared"] == {"reopen": len(site.of(Class.LOST_CLEARED))}
    assert site.files() == {"report", "report/problems", "report/verdict.json"}


async def test_unmatched_ones_wait_for_the_operators_word(tmp_path: Path) -> None:
    site = Site(tmp_path, 3, 100, 0.0)
    first = await site.run(also_unmatched=False)
    unmatched = site.of(Class.PRIMARY_EXISTS)
    assert first.counts[UNMATCHED] == {"primary-exists": {"not-asked": len(unmatched)}}
    assert not site.repairs.given_up_unmatched().num_rows
    write_journal(QuickDisk(), site.report, first)  # as after dispatchers were asked to replay
    second = await site.run(also_unmatched=True)
    assert second.counts[UNMATCHED] == {"primary-exists": {"reopened": len(unmatched)}}
    assert second.counts[LOSSES] == first.counts[LOSSES]


async def test_what_changed_since_the_export_is_left_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, 4, 100, 0.0)
    changed = site.of(Class.LOST_CLEARED)[::2]
    for number in changed:  # given back and joined by somebody else
        row = Row(number, OWNER, number)
        site.world.shard.do(reopen([row], operator=True))
        site.world.take(number, 1)
    progress = await site.run()
    left = len(site.of(Class.LOST_CLEARED)) - len(changed)
    assert progress.counts[LOSSES]["lost-cleared"] == {"changed": len(changed), "reopened": left}
    assert all(site.world.written[number] == 1 for number in changed)


@pytest.mark.parametrize("round_", range(25 if os.environ.get("PHOTON_FULL") else 10))
async def test_killed_anywhere_and_begun_again(tmp_path: Path, round_: int) -> None:
    """With any losses on the way, and any collection in between: nothing is written twice."""
    seed = int(os.environ.get("PHOTON_SEED", 0)) or 20261121 + round_
    print(f"PHOTON_SEED={seed}")
    site = Site(tmp_path, seed, 120, 0.3)
    ended = None
    for _attempt in range(200):
        if site.draw.random() < 0.1:
            site.clock.ns, site.world.may_collect = OLD_NS, True
        site.world.live()
        with contextlib.suppress(Killed, RegistrySilent):
            ended = await site.run()
            break
    assert ended is not None, "it never ends"
    for _ in range(20):
        site.world.live()
    site.world.replay(site.of(Class.LOST_UNREGISTERED))
    written = site.world.written
    assert [number for number, times in written.items() if times > 1] == []
    assert not set(written) & {*site.of(Class.LOST_OWNED)}
    given_up = set(site.repairs.given_up_unmatched()["output_offset"].to_pylist())
    assert {number for number in site.of(Class.PRIMARY_EXISTS) if number in written} <= given_up
    counts = {**ended.counts[LOSSES], **ended.counts[UNMATCHED]}
    for kind in (Class.LOST_CLEARED, Class.PRIMARY_EXISTS):
        doubtful = counts[str(kind)].get("in-doubt", 0)
        assert sum(number not in written for number in site.of(kind)) <= doubtful
    if not site.world.may_collect:
        assert all("in-doubt" not in of for of in counts.values())
    again = await _until_done(site)
    assert again == ended
    assert [number for number, times in written.items() if times > 1] == []


async def test_without_the_memory_of_what_was_asked_ids_are_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule's ablation: some seed must show it, as 3 does now."""
    monkeypatch.setattr(Repairing, "_before", lambda *_: EarlierRepairs.NOT_ASKED)
    for seed in sorted(range(60), key=lambda each: each != 3):
        site = Site(tmp_path / str(seed), seed, 120, 0.3)
        site.clock.ns, site.world.may_collect = OLD_NS, True
        await _until_done(site)
        for _ in range(5):
            site.world.live()
        if any(times > 1 for times in site.world.written.values()):
            return
    raise AssertionError("no seed shows why the rule is needed")


async def _until_done(site: Site) -> RepairProgress:
    while True:
        with contextlib.suppress(Killed, RegistrySilent):
            return await site.run()


# -- what is not given back ------------------------------------------------------------------------------------------
async def test_losses_of_slots_that_were_not_looked_at_are_refused_until_they_are(tmp_path: Path) -> None:
    site = Site(tmp_path, 5, 100, 0.0)
    seen, site.seen = site.seen, replace(site.seen, sites={})
    cleared = site.of(Class.LOST_CLEARED)
    shown = await site.run(apply=False)
    done = await site.run()
    for each in (shown, done):
        assert each.counts[LOSSES]["lost-cleared"] == {"not-looked-at": len(cleared)}
        assert [(told.datacentre, told.slots, told.events) for told in each.unseen[LOSSES]] == [
            ("east", {"a": len(cleared)}, len(cleared))
        ]
    assert done.counts[LOSSES]["lost-unregistered"] == {"replay": len(site.of(Class.LOST_UNREGISTERED))}
    assert not site.world.written
    assert (await site.run()) == done, "it is refused again, and nothing is counted twice"
    site.seen = seen
    again = await site.run()
    site.world.live()
    assert again.counts[LOSSES]["lost-cleared"] == {"reopened": len(cleared)}
    assert again.unseen[LOSSES] == []
    assert again.wanted == done.wanted
    assert again.waiting_slots == done.waiting_slots
    assert set(site.world.written.values()) <= {1}


async def test_records_that_stand_in_some_file_are_not_given_back(tmp_path: Path) -> None:
    site = Site(tmp_path, 6, 200, 0.0)
    there = [*site.of(Class.LOST_CLEARED)[::2], *site.of(Class.LOST_UNREGISTERED)[::2]]
    joined = site.of(Class.PRIMARY_EXISTS)[::2]
    forgotten = tmp_path / "output" / "joined" / "old copy.jsonl"
    forgotten.parent.mkdir(parents=True)
    lines = [b'{"event_id":"e%d"}\n' % number for number in (*there, *joined)]
    forgotten.write_bytes(b"".join(lines))
    site.files_there = files_below(RealDisk(), tmp_path / "output", KINDS)
    done = await site.run()
    counts = {**done.counts[LOSSES], **done.counts[UNMATCHED]}
    found = [counts[str(kind)]["written"] for kind in (Class.LOST_CLEARED, Class.LOST_UNREGISTERED)]
    assert (sum(found), counts["primary-exists"]["written"]) == (len(there), len(joined))
    [file] = done.written[LOSSES]
    assert (file.file, file.events) == (str(forgotten), len(there))
    assert forgotten.read_bytes()[file.offset :].startswith(b'{"event_id":"%s"}' % file.event.encode())
    site.world.live()
    assert not set(site.world.written) & {*there, *joined}
    site.files_there = []
    again = await site.run()
    site.world.live()
    counts = {**again.counts[LOSSES], **again.counts[UNMATCHED]}
    assert all("written" not in of for of in counts.values())
    assert set(site.world.written.values()) == {1}


async def test_a_second_report_names_earlier_repairs(tmp_path: Path) -> None:
    site = Site(tmp_path, 7, 100, 0.0)
    await site.run()
    for _ in range(20):
        site.world.live()
    written = dict(site.world.written)
    rows = [each for each in site.findings if each]
    site.report = write_report(tmp_path / "second", rows, exported_ns=EXPORTED_NS - 1)
    for apply in (False, True):
        progress = await site.run(apply=apply)
        assert progress.counts[LOSSES]["lost-cleared"] == {"earlier": len(site.of(Class.LOST_CLEARED))}
        assert progress.counts[UNMATCHED]["primary-exists"] == {"earlier": len(site.of(Class.PRIMARY_EXISTS))}
    assert dict(site.world.written) == written


async def test_damage_is_marked_only_where_its_events_were_given_back(tmp_path: Path) -> None:
    site = Site(tmp_path, 8, 0, 0.0)
    places = ["joined/a-000001.jsonl", "joined/b-000001.jsonl", "joined/hour=2026-11-20T09/part.jsonl"]
    torn = [lost(at, Class.TORN, None, output_file=place, output_offset=5) for at, place in enumerate(places)]
    whole = lost(9, log=None)  # its checksum is wrong, all of its lines can be read
    site.report = write_report(tmp_path / "torn", [*torn, whole], exported_ns=EXPORTED_NS)
    path = tmp_path / "output" / places[0]
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"event_id":"e9"}\n')
    site.files_there = files_below(RealDisk(), tmp_path / "output", KINDS)
    unmounted = SeenSlot(3, 3, "out", True)
    site.seen = replace(site.seen, sites={"east": {**site.seen.sites["east"], "b": unmounted}})
    for _ in range(2):
        done = await site.run()
        assert done.counts["damage"] == {"torn": {"written": 1, "not-looked-at": 1, "unmarked": 1}}
    site.files_there, site.seen = [], replace(site.seen, gone=("b",))
    done = await site.run()
    assert done.counts["damage"] == {"torn": {"unmarked": 3}}


class DyingAtMarks(QuickDisk):
    """The process is killed before or after a file of marks, or of the journal, is replaced."""

    def __init__(self, left: int, *, after: bool) -> None:
        self.left, self.after = left, after

    def replace(self, path: Path, data: bytes) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        super().replace(path, data)
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("after", [False, True])
async def test_damaged_ranges_are_marked_once_the_events_are_given_back(tmp_path: Path, after: bool) -> None:
    """Killed anywhere, and run again: the range is marked, and no id is given back twice."""
    for left in range(1, 60):
        site = Site(tmp_path / f"{left}", 3, 40, 0.0)
        slot = WrittenSlot(site.directory)
        slot.final(1)
        gone = slot.path(1).with_name(slot.path(1).name + ".gz")
        gone.unlink()
        torn = ReportedProblem(
            Class.TORN, digest(0), b"", 0, None, None, 0, "east", None, slot.name(1), 0, None
        )  # fmt: skip
        reported = [each for each in site.findings if each]
        site.report = write_report(site.directory / "again", [*reported, torn], exported_ns=EXPORTED_NS, files=3)
        disk: RealDisk = DyingAtMarks(left, after=after)
        killed = 0
        while True:
            report = open_report(RealDisk(), site.report, DEPLOYMENT)
            marks = SlotMarks(disk, {"east": slot.place}, {}, "2026-11-28T00:00:00+00:00")
            rules, repairs = RepairRules(False, RETENTION_NS, 1e12, True), Repairs(disk, site.directory / "repairs")
            run = Repairing(
                report, site.world, site.world, disk, repairs, marks, site.seen, site.files_there, site.clock, rules,
                lambda progress: None,
            )  # fmt: skip
            try:
                progress = await run.run()
                break
            except Killed:
                killed += 1
                disk = QuickDisk()
        assert progress.counts[DAMAGE] == {"torn": {"marked": 1}}
        [marked] = read_damaged(RealDisk(), slot.state)
        assert (marked.file, marked.start, marked.end) == (slot.name(1), 0, 3)
        assert progress.marked.slots == {"east/s0": (marked,)}
        assert set(site.world.written.values()) <= {1}
        if not killed:
            return
    raise AssertionError("it never came to its end")
