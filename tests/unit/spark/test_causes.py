"""From a night's observations to its causes."""

from __future__ import annotations

import pytest

from photon.spark.verify.causes import (
    CauseKind,
    CommandLine,
    Evidence,
    FileTrouble,
    LogEvidence,
    LogGroup,
    LogTrouble,
    LostGroup,
    UnnamedFile,
    UnnamedLines,
    causes_of,
)

COMMANDS = CommandLine("/etc/photon/photon.toml", "reports/a day", "2026-11-20T00", "2026-11-21T00")
RECOVER = "photon spark recover --config /etc/photon/photon.toml --report 'reports/a day' --dry-run"
SLOTS = {"east": {"e-1": 3, "e-2": 2}, "west": {"w-1": 4}}
GONE = FileTrouble("east", "e-1", "joined/e-1-000001.jsonl.gz", "/o/joined/e-1-000001.jsonl.gz",
                   "was published, but is gone", 10, 12)  # fmt: skip
CUT = GONE._replace(file="joined/e-1-000002.jsonl.gz", why="is cut short after line 5", first=12, last=15)
WRONG = GONE._replace(why="checksum wrong, but all 3,915 lines are complete")


def told(evidence: Evidence) -> list[tuple[CauseKind, str, int]]:
    return [(each.kind, each.what, each.events) for each in causes_of(evidence, COMMANDS)[0]]


def lost(hour: int | None, slot: str = "e-1", kind: str = "joined", datacentre: str = "east") -> LostGroup:
    return LostGroup(datacentre, slot, kind, hour)


def test_lost_records_belong_to_the_file_that_held_them() -> None:
    groups = {lost(10): 5, lost(14): 7, lost(20): 1, lost(10, kind="unmatched"): 2}
    evidence = Evidence([GONE, CUT], SLOTS, groups)
    found, attributed = causes_of(evidence, COMMANDS)
    assert [(each.kind, each.what, each.events, each.alone) for each in found] == [
        (CauseKind.FILE_GONE, GONE.file, 7, False),
        (CauseKind.FILE_DAMAGED, CUT.file, 7, False),
    ]
    assert found[0].say == "file joined/e-1-000001.jsonl.gz is gone: 7 events"
    assert {each.command for each in found} == {RECOVER}
    assert attributed[lost(14)] == f"{CUT.file}: {CUT.why}"
    assert lost(20) not in attributed, "no file of that hour is damaged"


def test_nobody_knows_which_of_two_files_held_them() -> None:
    evidence = Evidence([GONE, CUT], SLOTS, {lost(12): 4, lost(14): 1})
    assert told(evidence) == [
        (CauseKind.FILE_DAMAGED, f"{GONE.file}, {CUT.file}", 4),
        (CauseKind.FILE_DAMAGED, CUT.file, 1),
    ]


def test_a_wrong_checksum_lost_nothing() -> None:
    (cause,), attributed = causes_of(Evidence([WRONG], SLOTS, {lost(10): 4}), COMMANDS)
    assert cause.say == "joined/e-1-000001.jsonl.gz: checksum wrong, but all 3,915 lines are complete"
    path = WRONG.path
    assert cause.command == f"gzip -cd {path} | gzip > {path}.new && mv {path}.new {path}"
    assert attributed == {}


def test_all_files_of_a_slot_are_one_cause() -> None:
    files = [GONE._replace(slot="e-2", file=f"joined/e-2-00000{n}.jsonl.gz") for n in (1, 2)]
    (cause,), _ = causes_of(Evidence(files, SLOTS, {lost(11, "e-2"): 9}), COMMANDS)
    assert (cause.kind, cause.what, cause.events) == (CauseKind.SLOT_GONE, "e-2", 9)
    assert cause.say == "all 2 files of slot e-2 are gone: 9 events; mount its disk"
    assert cause.command == "photon status slots e-2 --config /etc/photon/photon.toml"


@pytest.mark.parametrize(
    ("datacentre", "slot", "why"),
    [
        ("north", "n-1", "the deployment file has no such datacentre"),
        ("east", "e-9", "below the datacentre's state/slots"),
    ],
)
def test_output_that_was_not_read(datacentre: str, slot: str, why: str) -> None:
    groups = {lost(hour, slot, kind, datacentre): 2 for hour in (1, 2) for kind in ("joined", "unmatched")}
    (cause,), attributed = causes_of(Evidence([], SLOTS, groups), COMMANDS)
    assert (cause.kind, cause.datacentre, cause.what, cause.events) == ("slot-not-read", datacentre, slot, 8)
    assert cause.say.startswith(f"output of slot {slot} was not read: 8 events; {datacentre}: ")
    assert cause.say.endswith(why)
    assert set(attributed.values()) == {f"output of slot {slot} was not read"}


def test_a_file_that_nothing_names() -> None:
    name, path = "joined/w-1-000077.jsonl", "/data/west/output/joined/w-1-000077.jsonl.gz"
    copy = UnnamedFile("west", name, path, UnnamedLines(4943, 4943))
    files = [
        copy,
        copy._replace(file="joined/w-1-000004.jsonl", lines=UnnamedLines(4943)),
        copy._replace(read=False),
        copy._replace(lines=UnnamedLines(4943, 4943, 3, 493_920, 493_921)),
    ]
    whole, stale, unread, more = causes_of(Evidence(unnamed=files), COMMANDS)[0]
    said = "4,943 lines: 4,943 are copies of records in the output, 0 are nowhere else"
    assert whole.say == f"{name}: not named by the manifest, {said}"
    assert whole.command == f"mv -n {path} /data/west/"
    assert stale.say.endswith("4,943 are nowhere else; restore the slot's manifest.jsonl from a copy")
    assert unread.say.endswith("its lines are of hours that were not verified")
    assert more.say.endswith("(3 more lines are of other hours: verify those, too)")
    assert {each.command.partition(" --")[0] for each in (stale, unread, more)} == {"photon spark verify"}
    assert " --from 2026-05-07T00 --to 2026-05-07T02 " in more.command
    assert all(each.alone for each in (whole, stale, unread, more))


def test_logs_that_are_gone() -> None:
    groups = {
        LogGroup("foreign", "east", "a.log", False): 60,
        LogGroup("foreign", "west", "a.log", False): 40,
        LogGroup("foreign", "west", "a.log", True): 7,
        LogGroup("foreign", "west", "b.log", True): 6,
        LogGroup("primary", "west", "q.log", False): 5,
    }
    known = {("foreign", "west", "a.log"): LogEvidence.DISPATCHER, ("primary", "west", "q.log"): LogEvidence.EARLIER}
    found, _ = causes_of(Evidence(logs=groups, known=known), COMMANDS)
    assert [(each.datacentre, each.what, each.events, each.say.partition(";")[0]) for each in found] == [
        ("east, west", "a.log", 100, "foreign log a.log was read by the dispatcher and is gone in every "
         "datacentre that has its events: 100 events"),
        ("west", "a.log", 7, "foreign log a.log was read by the dispatcher and is gone in west only: 7 events"),
        ("west", "b.log", 6, "foreign log b.log is named by records but missing in west only: 6 events"),
        ("west", "q.log", 5, "primary log q.log was read by an earlier night and is gone in "
         "every datacentre that has its events: 5 events"),
    ]  # fmt: skip
    assert {each.command for each in found} == {
        "photon spark verify --config /etc/photon/photon.toml --from 2026-11-20T00 --to 2026-11-21T00 "
        "--report 'reports/a day'"
    }


def test_logs_that_are_damaged() -> None:
    cut = LogTrouble("east", "foreign", "a.log", "a.log.gz", 1200, "ends in the middle")
    whole = cut._replace(log="b.log", path="b.log.gz", why="checksum wrong, all its lines are whole")
    groups = {LogGroup("foreign", "east", "a.log", True): 29}
    broken, checksum = causes_of(Evidence(logs=groups, damaged=[cut, whole]), COMMANDS)[0]
    assert (broken.kind, broken.events, broken.alone) == ("log-damaged", 29, False)
    said = "foreign log a.log: cannot be read from byte 1,200 on (ends in the middle): 29 events; "
    assert broken.say == said + "restore it from a copy"
    assert (checksum.events, checksum.alone, checksum.command) == (0, True, "gzip -t b.log.gz")
