"""Groups that come and go while a replica runs: on disk, across restarts, with late replicas, on a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from photon.config.disk import RealDisk
from photon.idregistry.raft import host as host_module
from photon.idregistry.raft import identity
from photon.idregistry.raft.api import Applied, NotLeader, Unknown
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.raft.identity import KnownGroups, known_groups
from photon.idregistry.raft.options import RaftOptions, RaftStopped
from photon.idregistry.raft.transport import GroupMessage, Hello
from tests.unit.idregistry.raft.cluster import GROUP, Cluster, Recorder, host_of, propose, running, wait_until

NEW = 8
WAIT = 20.0


def alone(directory: Path, disk: RealDisk | None = None, numbers: Iterable[int] = (GROUP,)) -> RaftHost:
    machines = {number: Recorder() for number in numbers}
    return host_of("a", directory / "a", machines, disk=disk or RealDisk(), options=RaftOptions(disk_retry=0.02))


def test_a_group_is_added_while_the_others_work(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        old = cluster.leader()
        term = cluster.group(old).state().term
        machines = {name: cluster.add(name, NEW) for name in "abc"}
        assert isinstance(propose(cluster.group(cluster.leader(number=NEW), NEW), b"new"), Applied)
        assert isinstance(propose(cluster.group(old), b"old"), Applied)
        wait_until(lambda: all(machine.commands == [b"new"] for machine in machines.values()))
        assert cluster.machines[old].commands == [b"old"]
        assert cluster.group(old).state().term == term
        assert cluster.hosts["a"].numbers == [GROUP, NEW]


def test_it_is_found_again_after_a_restart(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        assert known_groups(RealDisk(), tmp_path / "a") == KnownGroups((GROUP,), ())
        cluster.add("a", NEW)
        cluster.leader("a", NEW)
        assert isinstance(propose(cluster.group("a", NEW), b"kept"), Applied)
    known = known_groups(RealDisk(), tmp_path / "a")
    assert known == KnownGroups((GROUP, NEW), ())
    machines = {number: Recorder() for number in known.present}
    with running(host_of("a", tmp_path / "a", machines)):
        wait_until(lambda: machines[NEW].commands == [b"kept"])


def test_before_the_first_start_there_are_none(tmp_path: Path) -> None:
    assert known_groups(RealDisk(), tmp_path / "nothing") == KnownGroups((), ())


def test_a_replica_that_lacks_the_group_loses_its_messages_and_opens_it_later(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.leader()
        early = {name: cluster.add(name, NEW) for name in "ab"}
        leader = cluster.leader("ab", NEW)
        for number in range(5):
            assert isinstance(propose(cluster.group(leader, NEW), b"%d" % number), Applied)
        wait_until(lambda: cluster.hosts["c"].dropped > 0)
        assert cluster.hosts["c"].healthy
        assert cluster.hosts["c"].numbers == [GROUP]
        late = cluster.add("c", NEW)
        wait_until(lambda: late.commands == early[leader].commands)
        assert cluster.group("c", NEW).state().leader == leader
    for name in "abc":
        assert known_groups(RealDisk(), tmp_path / name).present == (GROUP, NEW)


@pytest.mark.parametrize(
    ("lost", "said"),
    [([f"group-{NEW:05d}"], "lost its journal"), (["replica", f"group-{GROUP:05d}"], "missing next to its journals")],
    ids=["a journal", "the identity beside an added group alone"],
)
def test_what_an_added_group_lost_is_missed(tmp_path: Path, lost: list[str], said: str) -> None:
    with Cluster(tmp_path, "a") as cluster:
        cluster.add("a", NEW)
    for name in lost:
        (tmp_path / "a" / name).rename(tmp_path / name)
    with pytest.raises(RaftStopped, match=said):
        Cluster(tmp_path, "a").start("a")


def test_what_a_wiped_disk_forgot_is_not_voted_on_in_an_added_group(tmp_path: Path) -> None:
    """The new group has the identity of its replica: a disk that others know differently stops it there as well."""
    with Cluster(tmp_path) as cluster:
        machines = {name: cluster.add(name, NEW) for name in "abc"}
        leader = cluster.leader(number=NEW)
        assert isinstance(propose(cluster.group(leader, NEW), b"x"), Applied)
        wait_until(lambda: all(machine.commands for machine in machines.values()))
        wiped = "abc".replace(leader, "")[0]
        cluster.wipe(wiped, tmp_path)
        with contextlib.suppress(RaftStopped):
            cluster.add(wiped, NEW)
        wait_until(lambda: cluster.hosts[wiped].failure is not None)
        assert "another disk" in str(cluster.hosts[wiped].failure)


def test_messages_of_another_membership_do_not_reach_an_added_group(tmp_path: Path) -> None:
    with Cluster(tmp_path, options=RaftOptions(epoch=2)) as cluster:
        cluster.add("a", NEW)
        host = cluster.hosts["a"]
        messages: list[GroupMessage] = [(NEW, b"anything")]
        disk = cluster.hosts["b"]._identity.hello.disk
        assert "epoch 2, not 1" in host.receive(Hello("b", disk, 1), messages).reason
        assert host.receive(Hello("stranger", bytes(16), 2), messages) is not None


def test_a_group_is_added_once_and_groups_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "GROUPS_MAX", 2)
    with Cluster(tmp_path, "a") as cluster:
        cluster.add("a", NEW)
        for number, said in ((GROUP, "here already"), (NEW, "here already"), (NEW + 1, "accepts no more")):
            with pytest.raises(ValueError, match=said):
                cluster.add("a", number)


def test_a_removed_group_is_gone_for_ever(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        host = cluster.hosts["a"]
        cluster.add("a", NEW)
        cluster.leader("a", NEW)
        group = host.group(NEW)
        assert isinstance(propose(group, b"x"), Applied)
        host.remove_group(NEW).result(WAIT)
        assert host.numbers == [GROUP]
        assert propose(group, b"y") == NotLeader(None)
        assert not os.listdir(tmp_path / "a" / f"group-{NEW:05d}")
        for gone in (host.group, host.remove_group):
            with pytest.raises(KeyError):
                gone(NEW)
        with pytest.raises(RaftStopped, match="not used again"):
            cluster.add("a", NEW)
        cluster.leader()
        assert isinstance(propose(host.group(GROUP), b"z"), Applied)
        assert host.healthy
    assert known_groups(RealDisk(), tmp_path / "a") == KnownGroups((GROUP,), (NEW,))
    with pytest.raises(RaftStopped, match="numbers are not used again"):
        alone(tmp_path, numbers=(GROUP, NEW)).start()
    with running(alone(tmp_path)):
        pass


def test_open_proposals_of_a_removed_group_are_unknown(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        for name in "abc":
            cluster.add(name, NEW)
        leader = cluster.leader(number=NEW)
        cluster.cut(*"abc")  # nothing is committed from here on
        outcomes: list[object] = []
        cluster.group(leader, NEW).propose(b"x", timeout=60, done=outcomes.append)
        cluster.hosts[leader].remove_group(NEW).result(WAIT)
        assert outcomes == [Unknown()]


def test_deleting_that_was_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        cluster.add("a", NEW)
    here = tmp_path / "a" / f"group-{NEW:05d}"
    journal = next(here.iterdir())
    kept = journal.read_bytes()
    with running(alone(tmp_path, numbers=(GROUP, NEW))) as host:
        host.remove_group(NEW).result(WAIT)
    journal.write_bytes(kept)
    with running(alone(tmp_path)):
        pass
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
    with running(alone(tmp_path, disk)) as host:
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


def test_a_full_disk_delays_a_removal(tmp_path: Path) -> None:
    disk = _FullDisk()
    with running(alone(tmp_path, disk, (GROUP, NEW))) as host:
        disk.no_room_for = "replica"
        removed = host.remove_group(NEW)
        wait_until(lambda: disk.refused > 2)
        assert not removed.done()
        assert host.numbers == [GROUP, NEW]
        disk.no_room_for = ""
        removed.result(WAIT)
        assert host.numbers == [GROUP]


def test_a_damaged_directory_stops_the_replica_and_nothing_is_added_to_one_that_ended(tmp_path: Path) -> None:
    with Cluster(tmp_path, "a") as cluster:
        here = tmp_path / "a" / f"group-{NEW:05d}"
        here.mkdir()
        (here / "journal-0000000000000001.log").write_bytes(b"rubbish")
        with pytest.raises(RaftStopped, match="has stopped"):
            cluster.add("a", NEW)
        wait_until(lambda: not cluster.hosts["a"].healthy)
        assert "is damaged" in str(cluster.hosts["a"].failure)
    with Cluster(tmp_path, "b") as cluster:
        cluster.hosts["b"].stop()
        with pytest.raises(RaftStopped, match="has stopped"):
            cluster.add("b", NEW)


def test_another_version_and_rubbish_are_refused(tmp_path: Path) -> None:
    with running(alone(tmp_path)):
        pass
    path, header = tmp_path / "a" / "replica", identity._HEADER
    body = path.read_bytes()[header.size :]
    path.write_bytes(header.pack(identity.MAGIC, 1, zlib.crc32(body)) + body)
    with pytest.raises(RaftStopped, match="version 1, this release reads version 3"):
        known_groups(RealDisk(), tmp_path / "a")
    path.write_bytes(b"x")
    with pytest.raises(RaftStopped, match="damaged"):
        known_groups(RealDisk(), tmp_path / "a")
