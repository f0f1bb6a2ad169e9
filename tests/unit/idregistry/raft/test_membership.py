"""A replica's directory defines the members; the file only those with which a new directory begins."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.raft.identity import Identity, Membership, membership
from photon.idregistry.raft.options import RaftStopped
from photon.idregistry.raft.transport import Hello, Refused

DISK = RealDisk()
FIRST = {"r1": "a:1", "r2": "a:2", "r3": "a:3"}
NEXT = {"r1": "a:1", "r2": "a:2", "r4": "a:4"}


def begun(directory: Path, members: dict[str, str], epoch: int = 1) -> Identity:
    return Identity(
        disk=DISK, directory=directory, name="r1", members=members, epoch=epoch, groups=(), entropy=bytes
    )  # fmt: skip


def started(directory: Path, members: dict[str, str], epoch: int = 1) -> Membership:
    """Like ``photon serve registry`` with a file that has these."""
    found = membership(DISK, directory, Membership(epoch, members))
    begun(directory, dict(found.members), found.epoch)
    return found


def test_a_new_directory_begins_with_those_of_the_file_and_keeps_them(tmp_path: Path) -> None:
    assert started(tmp_path, FIRST) == Membership(1, FIRST)
    renamed = {"r1": "b:1", "r2": "b:2", "r4": "b:4"}
    assert started(tmp_path, renamed) == Membership(1, {"r1": "b:1", "r2": "b:2", "r3": "a:3"})


def test_the_next_one_is_taken_up_by_the_next_start(tmp_path: Path) -> None:
    identity = begun(tmp_path, FIRST)
    assert identity.follow(2, NEXT) == ""
    assert identity.follow(2, NEXT) == ""
    identity.made([])
    assert identity.hello.epoch == 1
    assert started(tmp_path, FIRST) == Membership(2, NEXT)
    assert started(tmp_path, {"r1": "a:1"}) == Membership(2, NEXT)


def test_no_two_memberships_have_one_epoch(tmp_path: Path) -> None:
    """Otherwise two operators could make two majorities."""
    identity = begun(tmp_path, FIRST)
    assert identity.follow(2, NEXT) == ""
    other = {**FIRST, "r5": "a:5"}
    assert "has agreed to r1, r2, r4 as the members of epoch 2" in identity.follow(2, other)
    assert "is in membership epoch 1: 3 is not the next one" in identity.follow(3, other)
    assert "r1 is not among r2" in identity.follow(2, {"r2": "a:2"})
    assert started(tmp_path, other, epoch=2) == Membership(2, NEXT)


def test_a_higher_epoch_of_the_file_is_taken_up(tmp_path: Path) -> None:
    started(tmp_path, FIRST)
    assert started(tmp_path, NEXT, epoch=2) == Membership(2, NEXT)


def test_a_directory_may_have_no_addresses(tmp_path: Path) -> None:
    identity = begun(tmp_path, FIRST)
    identity._write(msgspec.structs.replace(identity._record, addresses={}))
    assert started(tmp_path, FIRST).members == FIRST
    identity._write(msgspec.structs.replace(identity._record, addresses={}))
    with pytest.raises(RaftStopped, match="give the address of r3"):
        started(tmp_path, NEXT)


def test_a_wiped_disk_is_refused_in_whatever_epoch_it_begins(tmp_path: Path) -> None:
    """It is back in the file's epoch, where with other wiped ones it would be an ignorant majority."""
    identity = begun(tmp_path, FIRST, epoch=2)
    assert identity.check(Hello("r2", b"old", 2)) is None
    why = "r1 is in membership epoch 2, not 1"
    wiped = identity.check(Hello("r2", b"new", 1))
    assert wiped.fatal
    assert "with another disk" in wiped.reason
    assert identity.check(Hello("r2", b"old", 1)) == Refused(why, fatal=False)
    assert identity.check(Hello("r3", b"new", 1)) == Refused(why, fatal=False)
    assert identity.check(Hello("r3", b"own", 2)) is None  # nothing was noted of another epoch


def test_the_file_takes_along_who_was_not_asked_to_follow(tmp_path: Path) -> None:
    """r1 has noted the next membership and was restarted, r2 has not: neither epoch has a majority."""
    begun(tmp_path / "r1", FIRST).follow(2, NEXT)
    begun(tmp_path / "r2", FIRST)
    assert [started(tmp_path / each, NEXT).epoch for each in ("r1", "r2")] == [2, 1]
    assert [started(tmp_path / each, NEXT, epoch=2) for each in ("r1", "r2")] == [Membership(2, NEXT)] * 2


def test_who_was_replaced_is_not_listened_to_from_the_note_on(tmp_path: Path) -> None:
    """Otherwise, of five, it would form a majority with two that are still in the old epoch, while others have the
    next."""
    identity = begun(tmp_path, FIRST)
    old, kept = Hello("r3", b"old", 1), Hello("r2", b"own", 1)
    assert (identity.check(old), identity.check(kept)) == (None, None)
    assert identity.follow(2, NEXT) == ""
    refused = identity.check(old)
    assert "it was replaced" in refused.reason
    assert identity.check(kept) is None
    assert begun(tmp_path, FIRST).check(old) == refused


def test_a_full_disk_is_started_from_with_other_addresses(tmp_path: Path) -> None:
    begun(tmp_path, FIRST)

    class Full(RealDisk):
        def replace(self, path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    moved = dict.fromkeys(FIRST, "b:1")
    Identity(disk=Full(), directory=tmp_path, name="r1", members=moved, epoch=1, groups=(), entropy=bytes)
    assert membership(DISK, tmp_path, Membership(1, {"r1": "b:1"})).members == {**FIRST, "r1": "b:1"}
