"""Splits, merges and changed topologies, at rest and while it runs, interrupted and redone."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from photon import compute
from photon.assembly.computing import reads_of, site_of
from photon.cli.main import main
from photon.computing import Topology, rescaling
from photon.computing.errors import ComputingError
from photon.computing.intervals import HASHES, Move, even, merge_of, split_of, toward
from photon.computing.journal import Status
from photon.computing.rescaling import carry_out, make
from photon.computing.running import Running
from photon.computing.site import Busy, Site
from photon.computing.store import Store
from photon.computing.table import Known, Table
from photon.config.errors import PhotonError, UsageError
from tests.integration.commands import until
from tests.unit.computing.test_running import _feed, _read, _topology
from tests.unit.refusals import refused

SECONDS = 60.0


def _site(base: Path, topology: Topology | None = None) -> Site:
    return Site(topology or _topology(), base, base / "state", reads_of)


def _sums(count: int) -> dict[str, int]:
    return {f"name {k}": sum(range(k, count, 7)) for k in range(7)}


def _names(site: Site) -> list[str]:
    return [each.id for each in site.table.look().intervals.all]


@contextmanager
def _running(base: Path, topology: Topology | None = None) -> Iterator[Callable[[], object]]:
    stop, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            compute.run(topology or _topology(), state=base / "state", base=base, stop=stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield lambda: failed
    finally:
        stop.set()
        thread.join(SECONDS)
    assert not failed


def test_the_next_step_to_so_many_is_an_even_one() -> None:
    intervals, free = even(1), 1
    names = []
    for count in (4, 4, 2, 3, 1):
        while (move := toward(intervals, count, free)) is not None:
            intervals, free = intervals.after(move), free + len(move.new)
        names.append([each.id for each in intervals.all])
        lengths = {each.high - each.low for each in intervals.all}
        assert max(lengths) <= 2 * min(lengths)
    assert [len(each) for each in names] == [4, 4, 2, 3, 1]
    for wrong, why in (
        (lambda: split_of(even(2), "i7", None, 2), "no interval i7: there are i0, i1"),
        (lambda: split_of(even(2), "i0", HASHES - 1, 2), "cannot split i0"),
        (lambda: merge_of(even(3), "i0", "i2", 3), "are not neighbours"),
    ):
        with pytest.raises(UsageError, match=why):
            wrong()


def _move(site: Site, split: str = "", merge: tuple[str, str] | None = None) -> Move:
    known = site.table.look()
    if merge is not None:
        return merge_of(known.intervals, *merge, known.free)
    return split_of(known.intervals, split, None, known.free)


def _check(base: Path, count: int) -> None:
    assert {each["name"]: each["sum"] for each in _read(base / "sums")} == _sums(count)
    assert _read(base / "totals") == [{"all": sum(range(count)), "waiting": 0}]


def test_at_rest_two_that_have_not_read_as_far_are_merged(tmp_path: Path) -> None:
    _feed(tmp_path, range(50))
    site = _site(tmp_path)
    site.intervals(1)
    make(site, _move(site, split="i0"), SECONDS)
    for name, count in (("i1", 60), ("i2", 70)):
        running = Running(site, [name])
        stop = threading.Event()
        running.run(stop, lambda found, stop=stop: stop.set() if found[0].counts["records"] else None)  # type: ignore[misc]
        running.close()
        _feed(tmp_path, range(count - 10, count), slot="t")
    with pytest.raises(UsageError, match="are not neighbours"):
        _move(site, merge=("i1", "i1"))
    make(site, _move(site, merge=("i2", "i1")), SECONDS)
    assert _names(site) == ["i3"]
    assert sorted(path.name for path in site.state.glob("*.db")) == ["i3.db"]
    done = compute.run(_topology(), state=site.state, base=tmp_path, once=True)
    assert done.late == 0
    _check(tmp_path, 70)


def test_while_it_runs(tmp_path: Path) -> None:
    _feed(tmp_path, range(20))
    site = _site(tmp_path)
    with _running(tmp_path):
        until(lambda: (site.state / "i0.status.json").exists(), SECONDS, "it runs")
        with pytest.raises(Busy), site.alone():
            raise AssertionError("it is alone")
        make(site, _move(site, split="i0"), SECONDS)
        _feed(tmp_path, range(20, 40), slot="t")
        make(site, _move(site, split="i2"), SECONDS)
        _feed(tmp_path, range(40, 60), slot="u")
        make(site, _move(site, merge=("i1", "i3")), SECONDS)
        assert _names(site) == ["i5", "i4"]
    compute.run(_topology(), state=site.state, base=tmp_path, once=True)
    _check(tmp_path, 60)


def test_while_two_processes_share_it(tmp_path: Path) -> None:
    """Each move is made by the process that has its first interval; both take their new shares."""
    _feed(tmp_path, range(20))
    stop, failed = threading.Event(), list[BaseException]()
    held: list[dict[str, int]] = [{}, {}]

    def run(number: int) -> None:
        def look(found: list[Status]) -> None:
            held[number - 1] = {each.interval: each.counts["records"] for each in found}

        site = _site(tmp_path)
        try:
            with site.together():
                site.intervals(2)
                site.adopt()
                rescaling.run(site, stop, share=(number, 2), look=look)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in (1, 2)]
    for each in threads:
        each.start()
    site = _site(tmp_path)
    try:
        until(lambda: [*held[0], *held[1]] == ["i0", "i1"] or failed, SECONDS, "both have an interval")
        with pytest.raises(Busy), site.alone():
            raise AssertionError("it is alone")
        make(site, _move(site, split="i1"), SECONDS)
        _feed(tmp_path, range(20, 40), slot="t")
        make(site, _move(site, merge=("i0", "i2")), SECONDS)
        make(site, _move(site, split="i4"), SECONDS)
        _feed(tmp_path, range(40, 60), slot="u")
        assert _names(site) == ["i5", "i6", "i3"]
        until(lambda: ([*held[0]], [*held[1]]) == (["i5", "i3"], ["i6"]) or failed, SECONDS, "each has its share")
    finally:
        stop.set()
        for each in threads:
            each.join(SECONDS)
    assert not failed
    compute.run(_topology(), state=site.state, base=tmp_path, once=True)
    _check(tmp_path, 60)


@pytest.mark.parametrize("kill_at", range(6))
@pytest.mark.parametrize("kind", ["split", "merge"])
def test_one_that_is_broken_off_is_made_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kill_at: int
) -> None:
    _feed(tmp_path, range(30))
    site = _site(tmp_path)
    site.intervals(1 if kind == "split" else 2)
    running = Running(site)
    stop = threading.Event()
    running.run(stop, lambda found: stop.set() if sum(each.counts["records"] for each in found) == 30 else None)
    running.close()
    site.table.begin(_move(site, split="i0") if kind == "split" else _move(site, merge=("i0", "i1")))
    steps = [0]

    def killed(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            """Killed before it is done, or after."""
            steps[0] += 1
            if steps[0] == 2 * kill_at:
                raise Killed
            done = real(*given, **named)
            if steps[0] == 2 * kill_at + 1:
                raise Killed
            return done

        return step

    with monkeypatch.context() as patched:
        for name in ("acquire", "commit", "retire"):
            patched.setattr(Store, name, killed(getattr(Store, name)))
        patched.setattr(Table, "settle", killed(Table.settle))
        with contextlib.suppress(Killed):
            carry_out(site)
    assert compute.run(_topology(), state=site.state, base=tmp_path, once=True).late == 0
    assert site.table.look().move is None
    assert _names(site) == (["i1", "i2"] if kind == "split" else ["i2"])
    _check(tmp_path, 30)


class Killed(BaseException):
    pass


def test_what_cannot_be_made_is_said_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _feed(tmp_path, range(30))
    site = _site(tmp_path)
    site.intervals(2)
    move = _move(site, merge=("i0", "i1"))

    def broken(*given: object) -> None:
        raise ComputingError("it is\nbroken")

    with monkeypatch.context() as patched:
        patched.setattr(rescaling, "merge", broken)
        with pytest.raises(PhotonError, match="i0 and i1 into i2: it is broken; nothing was changed"):
            make(site, move, SECONDS)
    assert _names(site) == ["i0", "i1"]
    move = _move(site, merge=("i0", "i1"))
    site.table.begin(move)
    with pytest.raises(UsageError, match="another split or merge is in progress; wait"):
        make(site, move, SECONDS)
    monkeypatch.setattr(Table, "begin", lambda *given: None)
    with site.alone(), pytest.raises(PhotonError, match=r"not done in 0\.1 s"):
        make(site, move, 0.1)
    compute.run(_topology(), state=site.state, base=tmp_path, once=True)
    _check(tmp_path, 30)


def test_a_move_of_intervals_that_are_others_by_now_is_refused(tmp_path: Path) -> None:
    """Two commands at once: the state that the second has seen is gone, and its names are taken."""
    site = _site(tmp_path)
    site.intervals(2)
    stale = [_move(site, split="i0"), _move(site, split="i1"), _move(site, merge=("i0", "i1"))]
    make(site, _move(site, split="i1"), SECONDS)
    for move in stale:
        with pytest.raises(UsageError, match="were split or merged meanwhile"):
            make(site, move, SECONDS)
    assert _names(site) == ["i0", "i2", "i3"]
    assert sorted(path.stem for path in site.state.glob("*.db")) == ["i2", "i3"]


def test_an_owner_that_waited_for_a_split_does_not_begin_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process whose parent was killed, while the next one makes the split."""
    _feed(tmp_path, range(30))
    site, other = _site(tmp_path), _site(tmp_path)
    site.intervals(1)
    real = site.locked

    def locked(interval: str, wait_s: float = 0.0) -> contextlib.AbstractContextManager[None]:
        make(other, _move(other, split="i0"), SECONDS)
        return real(interval, wait_s)

    monkeypatch.setattr(site, "locked", locked)
    with pytest.raises(UsageError, match="has no interval i0"):
        Running(site, ["i0"])
    assert sorted(path.stem for path in site.state.glob("*.db")) == ["i1", "i2"]


def test_the_store_of_a_move_that_has_just_begun_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process begins it while this one looks for the stores of former intervals."""
    site, other = _site(tmp_path), _site(tmp_path)
    site.intervals(1)
    (site.state / "former.db").touch()
    look = site.table.look

    def looked() -> Known:
        known = look()
        if known.move is None:
            other.table.begin(_move(other, split="i0"))
            (site.state / "i1.db").touch()
        return known

    monkeypatch.setattr(site.table, "look", looked)
    rescaling._sweep(site)
    assert [path.name for path in site.state.glob("*.db")] == ["i1.db"]


def test_parts_are_added_and_taken_out_while_it_runs(tmp_path: Path) -> None:
    _feed(tmp_path, range(20))
    file = tmp_path / "change.py"
    file.write_text(CHANGED)
    state = tmp_path / "state"
    site = site_of(file, state)
    site.intervals(3)
    site.adopt()
    running, stop = Running(site), threading.Event()
    thread = threading.Thread(target=running.run, args=(stop,))
    held = site.alone()
    with held:
        thread.start()
        until(lambda: len(_counted(tmp_path / "seen")) == 20, SECONDS, "it computes")
        file.write_text(CHANGED + ADDED)
        command = ["compute", "reload", str(file), "--state", str(state), "-o", "json"]
        done = CliRunner().invoke(main, command)
        assert (done.exit_code, json.loads(done.output)["running"]) == (0, True), done.output
        _feed(tmp_path, range(20, 40), slot="t")
        until(lambda: len(_counted(tmp_path / "more")) == 20, SECONDS, "what is new computes")
        file.write_text(CHANGED.replace('topology.publish("seen", "seen")', "") + ADDED)
        assert CliRunner().invoke(main, command).exit_code == 0
        _feed(tmp_path, range(40, 60), slot="u")
        until(lambda: len(_counted(tmp_path / "more")) == 40, SECONDS, "it goes on")
        file.write_text("topology =")
        done = CliRunner().invoke(main, command)
        assert (done.exit_code, "SyntaxError" in done.output) == (2, True), done.output
        stop.set()
        thread.join(SECONDS)
        running.close()
    assert _counted(tmp_path / "seen") == sorted(range(40))
    assert _counted(tmp_path / "more") == sorted(range(20, 60))
    file.write_text(CHANGED)
    done = CliRunner().invoke(main, command)
    assert json.loads(done.output) == {"topology": "change", "computations": ["first", "second"], "running": False}


CHANGED = """
from photon.computing import Computation, Topology


class First(Computation):
    def process_record(self, ctx, record):
        ctx.produce("passed", record.value["foreign"])


class Second(Computation):
    stream = "seen"

    def process_record(self, ctx, record):
        ctx.produce(self.stream, record.value)


topology = Topology("change")
topology.add(First(), {topology.joined("in"): lambda record: record.value["foreign"]["name"]}, ["passed"])
topology.add(Second(), {"passed": lambda record: str(record.value["n"])}, ["seen"])
topology.publish("seen", "seen")
"""
ADDED = """

class Third(Second):
    stream = "more"


topology.add(Third(), {"passed": lambda record: str(record.value["n"])[::-1]}, ["more"])
topology.publish("more", "more")
"""


def _counted(path: Path) -> list[int]:
    return sorted(each["n"] for each in _read(path)) if (path / ".photon").exists() else []


def test_the_command(tmp_path: Path) -> None:
    _feed(tmp_path, range(3))
    file = tmp_path / "change.py"
    file.write_text(CHANGED)

    def rescale(*options: str) -> Result:
        return CliRunner().invoke(main, ["compute", "rescale", str(file), *options])

    assert "create one with photon compute run" in refused(rescale())
    assert CliRunner().invoke(main, ["compute", "run", str(file), "--once"]).exit_code == 0
    done = rescale("--processes", "3", "--dry-run", "-o", "json")
    assert "photon: i0 into i1 and i2, not done" in done.stderr
    assert len(json.loads(done.stdout)["intervals"]) == 3
    assert len(json.loads(rescale("-o", "json").stdout)["intervals"]) == 1
    assert rescale("--split", "i0", "--at", "0x40000000").exit_code == 0
    assert (done := rescale("--merge", "i2", "i1")).exit_code == 0
    assert done.stdout.splitlines()[1].split() == ["i3", "0x00000000", "0x100000000"]
    for wrong in ("--split i0", "--split i3 --at half", "--at 1", "--split i3 --processes 2"):
        refused(rescale(*wrong.split()))
