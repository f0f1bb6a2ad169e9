"""Groups that come and go while a replica runs: on disk, across restarts, with late replicas, on a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.raft import host as host_module
from photon.idregistry.raft import identity
from photon.idregistry.raft.api import Applied, NotLeader, Unknown
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import KnownGroups, known_groups
from photon.idregistry.raft.options import RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello
from tests.unit.idregistry.raft.cluster import GROUP, Cluster, Recorder, propose, wait_until

NEW = 8
WAIT = 20.0


def add(cluster: Cluster, name: str, number: int = NEW) -> Recorder:
    machine = Recorder()
    cluster.hosts[name].add_group(number, machine).result(WAIT)
    return machine


def leader_of(cluster: Cluster, number: int, among: str = "abc") -> str:
    found: list[str] = []

    def look() -> bool:
        found[:] = [name for name in among if cluster.hosts[name].group(number).state().is_leader]
        return bool(found)

    wait_until(look)
    return found[0]


def start_alone(directory: Path, disk: RealDisk, numbers: tuple[int, ...] = (GROUP,)) -> RaftHost:
    host = RaftHost(
        name="a",
        peers={"a": "nowhere:1"},
        directory=directory / "a",
        machines={number: Recorder() for number in numbers},
        disk=disk,
        clock=SystemClock(),
        options=RaftOptions(disk_retry=0.02),
    )
    host.start()
    return host


def test_a_group_is_added_while_the_others_work(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        old = cluster.leader()
        term = cluster.group(old).state().term
        machines = {name: add(cluster, name) for name in "abc"}
        leader = leader_of(cluster, NEW)
        assert isinstance(propose(cluster.hosts[leader].group(NEW), b"new"), Applied)
        assert isinstance(propose(cluster.group(old), b"old"), Applied)
        wait_until(lambda: all(machine.commands == [b"new"] for machine in machines.values()))
        assert cluster.machines[old].commands == [b"old"]
        assert cluster.group(old).state().term == term
        assert cluster.hosts["a"].numbers == [GROUP, NEW]


def test_it_is_found_again_after_a_restart(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        assert known_groups(RealDisk(), tmp_path / "a") == KnownGroups((GROUP,), ())
        add(cluster, "a")
        leader_of(cluster, NEW, "a")
        assert isinstance(propose(cluster.hosts["a"].group(NEW), b"kept"), Applied)
    known = known_groups(RealDisk(), tmp_path / "a")
    assert known == KnownGroups((GROUP, NEW), ())
    machines = {number: Recorder() for number in known.present}
    host = RaftHost(
        name="a",
        peers={"a": "nowhere:1"},
        directory=tmp_path / "a",
        machines=machines,
        disk=RealDisk(),
        clock=SystemClock(),
    )
    host.start()
    try:
        wait_until(lambda: machines[NEW].commands == [b"kept"])
    finally:
        host.stop()


def test_before_the_first_start_there_are_none(tmp_path: Path) -> None:
    assert known_groups(RealDisk(), tmp_path / "nothing") == KnownGroups((), ())


def test_a_replica_that_lacks_the_group_loses_its_messages_and_opens_it_later(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.leader()
        early = {name: add(cluster, name) for name in "ab"}
        leader = leader_of(cluster, NEW, "ab")
        for number in range(5):
            assert isinstance(propose(cluster.hosts[leader].group(NEW), b"%d" % number), Applied)
        wait_until(lambda: cluster.hosts["c"].dropped > 0)
        assert cluster.hosts["c"].healthy
        assert cluster.hosts["c"].numbers == [GROUP]
        late = add(cluster, "c")
        wait_until(lambda: late.commands == early[leader].commands)
        assert cluster.hosts["c"].group(NEW).state().leader == leader
    for name in "abc":
        assert known_groups(RealDisk(), tmp_path / name).present == (GROUP, NEW)


def test_a_journal_that_is_lost_is_missed_in_an_added_group_too(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        add(cluster, "a")
    (tmp_path / "a" / f"group-{NEW:05d}").rename(tmp_path / "gone")
    with pytest.raises(RaftStopped, match="lost its journal"):
        Cluster(tmp_path, "a").start("a")


def test_a_lost_identity_is_missed_beside_an_added_group_alone(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        add(cluster, "a")
    (tmp_path / "a" / "replica").unlink()
    (tmp_path / "a" / f"group-{GROUP:05d}").rename(tmp_path / "gone")
    with pytest.raises(RaftStopped, match="missing beside journals"):
        Cluster(tmp_path, "a").start("a")


def test_what_a_wiped_disk_forgot_is_not_voted_on_in_an_added_group(tmp_path: Path) -> None:
    """The new group has the identity of its replica: a disk that others know otherwise stops it there as well."""
    with Cluster(tmp_path) as cluster:
        machines = {name: add(cluster, name) for name in "abc"}
        leader = leader_of(cluster, NEW)
        assert isinstance(propose(cluster.hosts[leader].group(NEW), b"x"), Applied)
        wait_until(lambda: all(machine.commands for machine in machines.values()))
        wiped = next(name for name in "abc" if name != leader)
        cluster.hosts[wiped].stop()
        (tmp_path / wiped).rename(tmp_path / "gone")
        with contextlib.suppress(RaftStopped):  # refused at its start, or a moment later
            cluster.start(wiped)
        with contextlib.suppress(RaftStopped):
            add(cluster, wiped)
        wait_until(lambda: cluster.hosts[wiped].failure is not None)
        assert "another disk" in str(cluster.hosts[wiped].failure)


def test_messages_of_another_membership_do_not_reach_an_added_group(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=RaftOptions(epoch=2)) as cluster:
        add(cluster, "a")
        host = cluster.hosts["a"]
        messages: list[GroupMessage] = [(NEW, b"anything")]
        disk = cluster.hosts["b"]._identity
        assert disk is not None
        refusal = host.receive(Hello("b", disk.hello.disk, 1), messages)
        assert refusal is not None
        assert "epoch 2, not 1" in refusal.reason
        assert host.receive(Hello("stranger", bytes(16), 2), messages) is not None


def test_a_group_is_added_once(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        host = cluster.hosts["a"]
        with pytest.raises(ValueError, match="here already"):
            host.add_group(GROUP, Recorder())
        add(cluster, "a")
        with pytest.raises(ValueError, match="here already"):
            host.add_group(NEW, Recorder())


def test_groups_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "GROUPS_MAX", 2)
    with Cluster(tmp_path, "a") as cluster:
        add(cluster, "a")
        with pytest.raises(ValueError, match="no more are taken"):
            cluster.hosts["a"].add_group(NEW + 1, Recorder())


def test_a_removed_group_is_gone_for_ever(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        host = cluster.hosts["a"]
        add(cluster, "a")
        leader_of(cluster, NEW, "a")
        group = host.group(NEW)
        assert isinstance(propose(group, b"x"), Applied)
        host.remove_group(NEW).result(WAIT)
        assert host.numbers == [GROUP]
        assert propose(group, b"y") == NotLeader(None)
        assert not os.listdir(tmp_path / "a" / f"group-{NEW:05d}")
        with pytest.raises(KeyError):
            host.group(NEW)
        with pytest.raises(KeyError):
            host.remove_group(NEW)
        with pytest.raises(RaftStopped, match="not used again"):
            host.add_group(NEW, Recorder()).result(WAIT)
        cluster.leader()
        assert isinstance(propose(host.group(GROUP), b"z"), Applied)
        assert host.healthy
    assert known_groups(RealDisk(), tmp_path / "a") == KnownGroups((GROUP,), (NEW,))
    with pytest.raises(RaftStopped, match="numbers are not used again"):
        start_alone(tmp_path, RealDisk(), (GROUP, NEW))
    start_alone(tmp_path, RealDisk()).stop()


def test_open_proposals_of_a_removed_group_are_unknown(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        for name in "abc":
            add(cluster, name)
        leader = leader_of(cluster, NEW)
        cluster.hub.cut |= {(a, b) for a in "abc" for b in "abc"}  # nothing is committed from here on
        outcomes: list[object] = []
        cluster.hosts[leader].group(NEW).propose(b"x", timeout=60, done=outcomes.append)
        cluster.hosts[leader].remove_group(NEW).result(WAIT)
        assert outcomes == [Unknown()]


def test_deleting_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        add(cluster, "a")
    here = tmp_path / "a" / f"group-{NEW:05d}"
    journal = next(here.iterdir())
    kept = journal.read_bytes()
    host = start_alone(tmp_path, RealDisk(), (GROUP, NEW))
    host.remove_group(NEW).result(WAIT)
    host.stop()
    journal.write_bytes(kept)
    start_alone(tmp_path, RealDisk()).stop()
    assert not list(here.iterdir())


class _FullDisk(RealDisk):
    """No room for new files of some names."""

    def __init__(self) -> None:
        self.no_room_for = ""
        self.refused = 0

    def append(self, path: Path) -> Any:
        if self.no_room_for and self.no_room_for in str(path):
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().append(path)


@pytest.mark.parametrize("no_room_for", [f"group-{NEW:05d}", "replica"])
def test_a_full_disk_delays_an_addition(tmp_path: Path, no_room_for: str) -> None:
    disk = _FullDisk()
    host = start_alone(tmp_path, disk)
    try:
        disk.no_room_for = no_room_for
        added = host.add_group(NEW, Recorder())
        wait_until(lambda: disk.refused > 2)
        assert not added.done()
        wait_until(lambda: host.group(GROUP).state().is_leader)
        assert isinstance(propose(host.group(GROUP), b"meanwhile"), Applied)
        disk.no_room_for = ""
        added.result(WAIT)
        wait_until(lambda: host.group(NEW).state().is_leader)
        assert isinstance(propose(host.group(NEW), b"x"), Applied)
    finally:
        host.stop()


def test_a_full_disk_delays_a_removal(tmp_path: Path) -> None:
    disk = _FullDisk()
    host = start_alone(tmp_path, disk, (GROUP, NEW))
    try:
        disk.no_room_for = "replica"
        removed = host.remove_group(NEW)
        wait_until(lambda: disk.refused > 2)
        assert not removed.done()
        assert host.numbers == [GROUP, NEW]
        disk.no_room_for = ""
        removed.result(WAIT)
        assert host.numbers == [GROUP]
    finally:
        host.stop()


def test_a_damaged_directory_stops_the_replica(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        here = tmp_path / "a" / f"group-{NEW:05d}"
        here.mkdir()
        (here / "journal-0000000000000001.log").write_bytes(b"rubbish")
        with pytest.raises(RaftStopped, match="has stopped"):
            cluster.hosts["a"].add_group(NEW, Recorder()).result(WAIT)
        wait_until(lambda: not cluster.hosts["a"].healthy)
        assert "is damaged" in str(cluster.hosts["a"].failure)


def test_nothing_is_added_to_a_replica_that_ended(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        host = cluster.hosts["a"]
        host.stop()
        with pytest.raises(RaftStopped, match="has stopped"):
            host.add_group(NEW, Recorder()).result(WAIT)


def _as_version_1(path: Path) -> None:
    data = path.read_bytes()
    header = identity._HEADER
    fields = msgspec.msgpack.decode(data[header.size :])
    body = msgspec.msgpack.encode(fields[:6])
    path.write_bytes(header.pack(identity.MAGIC, 1, zlib.crc32(body)) + body)


@pytest.mark.parametrize(
    ("change", "error"), [(_as_version_1, None), (lambda path: path.write_bytes(b"x"), "damaged")]
)
def test_what_an_older_version_wrote_is_read(
    tmp_path: Path, change: Callable[[Path], Any], error: str | None
) -> None:
    start_alone(tmp_path, RealDisk()).stop()
    change(tmp_path / "a" / "replica")
    if error is None:
        assert known_groups(RealDisk(), tmp_path / "a") == KnownGroups((GROUP,), ())
        start_alone(tmp_path, RealDisk()).stop()
    else:
        with pytest.raises(RaftStopped, match=error):
            known_groups(RealDisk(), tmp_path / "a")
