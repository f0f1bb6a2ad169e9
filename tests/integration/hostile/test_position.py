"""Logs replaced while nobody reads them, by longer ones with the same first record: nothing is left out."""

from __future__ import annotations

import contextlib
import gzip
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import Result
from tests.integration.join_logs import Following, Logs

TIME_US = 1_760_000_000_000_000


def queries(names: Sequence[str]) -> bytes:
    """Lines of equal length: line starts are at the same offsets in every log."""
    return b"".join(b'{"query_id":"%s","text":"%040d"}\n' % (name.encode(), at) for at, name in enumerate(names))


def clicks(names: Sequence[str]) -> bytes:
    """A click on each of these queries."""
    line = b'{"click_id":"c-%s","query_id":"%s","time_us":%d}\n'
    return b"".join(line % (name.encode(), name.encode(), TIME_US) for name in names)


def named(letter: str, count: int) -> list[str]:
    """The first is the same for every letter."""
    return ["s-0000", *(f"{letter}-{at:04}" for at in range(1, count))]


class Replaced(Logs):
    """The two directories, with logs made by the test."""

    def __init__(self, base: Path) -> None:
        super().__init__(base, clicks=1)
        self.output.mkdir()

    def put(self, directory: Path, data: bytes) -> None:
        """Puts a new file in the place of the old one."""
        log = next(directory.iterdir(), directory / f"{directory.name}.log")
        log.unlink(missing_ok=True)
        log.write_bytes(data)

    def ids(self) -> list[str]:
        """Joined ids, sorted."""
        return sorted(str(record["event_id"]) for record in records(self.output / "joined"))

    def ran(self, result: Result, *expected: str) -> dict[str, int]:
        """A run succeeded, and the output has a click on each of these queries, once."""
        assert result.code == 0, result.err
        assert self.ids() == sorted(f"c-{name}" for name in {*expected})
        ledger: dict[str, int] = result.json
        assert (ledger["unmatched"], ledger["pending"], ledger["rejected"]) == (0, 0, 0)
        assert ledger["joined"] == len(self.ids())
        return ledger


@pytest.fixture
def logs(tmp_path: Path) -> Replaced:
    return Replaced(tmp_path)


def test_a_foreign_log_replaced_between_two_runs_is_read_from_its_start(logs: Replaced) -> None:
    old, new = named("a", 100), named("b", 200)
    logs.put(logs.primary, queries([*old, *new]))
    logs.put(logs.foreign, clicks(old))
    logs.ran(logs.once(), *old)
    logs.put(logs.foreign, clicks(new))
    result = logs.once()
    ledger = logs.ran(result, *old, *new)
    told = [line for line in result.err.splitlines() if "clicks.log" in line]
    assert len(told) == 1, result.err
    assert f"was read up to byte {len(clicks(old))}" in told[0]
    assert (ledger["read"], ledger["joined"], ledger["reread"]) == (299, 299, 1)
    assert logs.ran(logs.once(), *old, *new)["read"] == 299


def test_a_primary_log_replaced_between_two_runs_is_read_from_its_start(logs: Replaced) -> None:
    old, new = named("a", 100), named("b", 200)
    logs.put(logs.primary, queries(old))
    logs.put(logs.foreign, clicks(old))
    logs.ran(logs.once(), *old)
    logs.put(logs.primary, queries(new))
    with (logs.foreign / "clicks.log").open("ab") as log:
        log.write(clicks(new[1:]))
    result = logs.once()
    logs.ran(result, *old, *new)
    told = (logs.output / ".photon/logs/eventstore.log").read_text()
    assert told.count(f"queries.log: was read up to byte {len(queries(old))}, and now holds different bytes") == 1


@pytest.mark.parametrize("longer", [True, False])
def test_rolled_to_1_with_a_new_one_in_its_place_that_begins_alike(logs: Replaced, longer: bool) -> None:
    old, more, new = named("a", 100), named("m", 30)[1:], named("b", 200 if longer else 50)
    logs.put(logs.primary, queries(old))
    logs.put(logs.foreign, clicks(old))
    logs.ran(logs.once(), *old)
    for directory, made in ((logs.primary, queries), (logs.foreign, clicks)):
        (log,) = directory.iterdir()
        with log.open("ab") as file:
            file.write(made(more))
        log.rename(f"{log}.1")
        log.write_bytes(made(new))
    result = logs.once()
    logs.ran(result, *old, *more, *new)
    assert "remove" not in result.err, result.err
    assert "clicks.log: begins like clicks.log.1" in result.err
    for directory, made in ((logs.primary, queries), (logs.foreign, clicks)):
        with next(directory.glob("*.log")).open("ab") as file:
            file.write(made(["z-0001"]))
    logs.ran(logs.once(), *old, *more, *new, "z-0001")
    for directory in (logs.primary, logs.foreign):
        next(directory.glob("*.1")).unlink()  # all of it was read
    with next(logs.foreign.glob("*.log")).open("ab") as file:
        file.write(clicks(["z-0002"]))
    with next(logs.primary.glob("*.log")).open("ab") as file:
        file.write(queries(["z-0002"]))
    result = logs.once()
    logs.ran(result, *old, *more, *new, "z-0001", "z-0002")
    assert "clicks.log" not in result.err, result.err


@pytest.mark.parametrize("seen", [False, True])
def test_a_primary_log_that_is_the_beginning_of_the_compressed_one_before_it(logs: Replaced, seen: bool) -> None:
    old = named("a", 100)
    logs.put(logs.primary, queries(old if seen else old[:1]))
    logs.put(logs.foreign, clicks(old[:1]))
    logs.ran(logs.once(), *old[:1])
    log = logs.primary / "queries.log"
    next(logs.primary.iterdir()).unlink()
    log.with_name("queries.log.1.gz").write_bytes(gzip.compress(queries(old)))
    log.write_bytes(queries(old[:50]))
    logs.put(logs.foreign, clicks(old))
    logs.ran(logs.once(), *old)


def test_a_primary_log_that_was_met_after_a_longer_one_that_is_gone_is_found_again(logs: Replaced) -> None:
    first, longer, short = named("a", 3), named("b", 200), named("c", 20)
    for at, (name, names) in enumerate(((".2", first), (".1", longer), ("", short))):
        path = logs.primary / f"queries.log{name}"
        path.write_bytes(queries(names))
        os.utime(path, (at, at))
    logs.put(logs.foreign, clicks(first))
    logs.ran(logs.once(), *first)
    for name in ("queries.log.1", "queries.log"):
        (logs.primary / name).unlink()
    (logs.primary / "queries.log.1.gz").write_bytes(gzip.compress(queries(short)))
    with (logs.foreign / "clicks.log").open("ab") as log:
        log.write(clicks(short[1:]))
    logs.config.write_text(logs.config.read_text() + '[join.clicks]\nmissing_logs = "forget"\n')
    logs.ran(logs.once(), *first, *short)


def test_a_log_replaced_while_a_follower_was_killed(logs: Replaced) -> None:
    old, new = named("a", 100), named("b", 200)
    logs.put(logs.primary, queries([*old, *new]))
    logs.put(logs.foreign, clicks(old))
    with logs.following() as following:
        _joined(logs, following, 100)
        time.sleep(0.5)  # a commit
        following.kill()
    logs.put(logs.foreign, clicks(new))
    with logs.following() as following:
        _joined(logs, following, 299)
        result = following.interrupt()
    logs.ran(result, *old, *new)


def counted(result: Result) -> tuple[int, ...]:
    """Counts in a run's ledger: read, joined, duplicate, rejected, pending, reread."""
    return tuple(result.json[name] for name in ("read", "joined", "duplicate", "rejected", "pending", "reread"))


def test_what_a_killed_run_joined_of_a_replaced_log_is_counted_once(logs: Replaced) -> None:
    old, new = named("a", 100), named("b", 60)
    logs.put(logs.primary, queries([*old, *new]))
    logs.put(logs.foreign, clicks(old))
    logs.ran(logs.once(), *old)
    logs.put(logs.foreign, clicks(new))
    with logs.following() as following:
        _joined(logs, following, 120)
        following.kill()  # mostly before the counts of its output are durable
    result = logs.once()
    logs.ran(result, *old, *new)
    assert counted(result) == (159, 159, 0, 0, 0, 1)


def test_what_waits_is_counted_once_when_its_log_is_read_again(logs: Replaced) -> None:
    names = named("a", 5)
    logs.put(logs.primary, queries(names[:2]))
    logs.put(logs.foreign, clicks(names))
    assert counted(logs.once("--keep-pending")) == (5, 2, 0, 0, 3, 0)
    logs.put(logs.foreign, clicks(names[:4]))  # the last line was lost with the old file
    assert counted(logs.once("--keep-pending")) == (5, 2, 0, 0, 3, 4)
    logs.put(logs.foreign, clicks([*names[:4], "z-0001"]))
    logs.put(logs.primary, queries([*names, "z-0001"]))
    assert counted(logs.once()) == (6, 6, 0, 0, 0, 4)
    assert logs.ids() == sorted(f"c-{name}" for name in (*names, "z-0001"))


def test_lines_that_a_replaced_log_shares_with_the_old_one_are_rejected_and_counted_once(logs: Replaced) -> None:
    names, new = named("a", 20), ["z-0001", "z-0002"]
    logs.put(logs.primary, queries([*names, *new]))
    shared = clicks(names[:3]) + b"nonsense\n" + clicks(names[3:5]) + clicks(names[1:2])
    logs.put(logs.foreign, shared + clicks(names[5:]))
    assert counted(logs.once()) == (22, 20, 1, 1, 0, 0)
    logs.put(logs.foreign, shared + clicks(new[:1]) + clicks(names[5:7]) + b"drivel\n" + clicks(new[1:]))
    assert counted(logs.once()) == (27, 22, 3, 2, 0, 7)
    assert [record["record"] for record in records(logs.output / "rejected")] == ["nonsense", "drivel"]


@pytest.mark.parametrize("known", [False, True])
def test_lines_that_two_logs_share_which_nobody_had_read_are_counted_once(logs: Replaced, known: bool) -> None:
    """Both begin like a log that is gone, and share more lines before they part. ``known``: so did two
    before them."""
    old, short, one = named("a", 50), named("s", 2), named("n", 40)
    two = [*one[:20], *named("t", 30)[1:]]
    logs.put(logs.primary, queries([*old, *short[1:], *one[1:], *two[20:]]))
    logs.put(logs.foreign, clicks(old))
    log = next(logs.foreign.iterdir())
    rolled = log.with_name(f"{log.name}.1")
    if known:
        log.rename(rolled)
        log.write_bytes(clicks(short))
    joined = {*old, *short} if known else {*old}
    logs.ran(logs.once(), *joined)
    rolled.write_bytes(clicks(one))
    log.write_bytes(clicks(two))
    ledger = logs.ran(logs.once(), *joined, *one, *two)
    assert ledger["read"] == ledger["joined"]
    assert ledger["reread"] == known + 21  # the first record, and the part the second shares with the first


def test_what_a_killed_run_joined_is_counted_once_though_another_log_begins_like_its_log_now(logs: Replaced) -> None:
    old, new = named("a", 100), named("b", 60)
    after = [*new[:30], *named("c", 40)[1:]]
    logs.put(logs.primary, queries([*old, *new[1:], *after[30:]]))
    logs.put(logs.foreign, clicks(old))
    logs.ran(logs.once(), *old)
    logs.put(logs.foreign, clicks(new))
    with logs.following() as following:
        _joined(logs, following, 120)
        following.kill()
    log = next(logs.foreign.iterdir())
    log.rename(f"{log}.1")
    log.write_bytes(clicks(after))
    ledger = logs.ran(logs.once(), *old, *new, *after)
    assert ledger["read"] == ledger["joined"]


def test_twenty_logs_that_begin_alike(logs: Replaced) -> None:
    made = [named(f"l{at}", 30 - at) for at in range(20)]
    logs.put(logs.primary, queries([*made[0][:1], *(name for names in made for name in names[1:])]))
    for at, names in enumerate(made):
        (logs.foreign / f"clicks.log.{at}").write_bytes(clicks(names))
    (logs.foreign / "clicks.log").unlink(missing_ok=True)
    ledger = logs.ran(logs.once(), *(name for names in made for name in names))
    assert (ledger["read"], ledger["reread"]) == (len(logs.ids()), 19)


def test_after_its_state_was_lost_the_ledger_leaves_out_what_logs_that_begin_alike_had_a_verdict_on(
    logs: Replaced,
) -> None:
    """As documented. The output is unchanged."""
    one, two = named("a", 30), named("b", 20)
    logs.put(logs.primary, queries([*one, *two[1:]]))
    logs.put(logs.foreign, clicks(one))
    log = next(logs.foreign.iterdir())
    log.rename(f"{log}.1")
    log.write_bytes(clicks(two))
    assert counted(logs.once()) == (49, 49, 0, 0, 0, 1)
    for path in (logs.output / ".photon").glob("dispatcher.db*"):
        path.unlink()
    with log.open("ab") as file:
        file.write(clicks(["z-0001"]))
    with next(logs.primary.iterdir()).open("ab") as file:
        file.write(queries(["z-0001"]))
    assert counted(logs.once()) == (31, 31, 0, 0, 0, 20)
    assert logs.ids() == sorted(f"c-{name}" for name in {*one, *two, "z-0001"})


def _joined(logs: Replaced, following: Following, count: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and following.process.poll() is None:
        with contextlib.suppress(OSError):
            if logs.joined() >= count:
                return
        time.sleep(0.05)
    raise AssertionError(following.err.read_text())
