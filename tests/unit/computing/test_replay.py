"""Which run of a topology counts, whenever a change is broken off."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.computing.publisher import Publisher
from photon.computing.replay import begin, current, replay_of
from photon.computing.wire import NEVER_NS
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs.replayed import REPLAYED_NAME, replayed

DISK = RealDisk()


def test_the_last_one_that_was_put_in_place_is_run(tmp_path: Path) -> None:
    first = tmp_path / "spend"
    first.mkdir()
    one, two = (begin(DISK, first, name, at) for name, at in (("fix1", 10), ("fix2", 20)))
    assert current(DISK, first) == first
    assert replay_of(DISK, one).since_ns == 10
    replay_of(DISK, one).place()
    replay_of(DISK, one).place()
    assert (current(DISK, first), current(DISK, one), current(DISK, two)) == (one, one, two)
    assert (replay_of(DISK, one).since_ns, replay_of(DISK, two).since_ns) == (NEVER_NS, 20)
    replay_of(DISK, two).place()
    assert current(DISK, first) == two
    for state in (first, one):
        with pytest.raises(UsageError, match="was replaced by the replay fix2"):
            replay_of(DISK, state).check()
    replay_of(DISK, two).check()


def test_a_stream_is_marked_once_its_successor_is_in_place(tmp_path: Path) -> None:
    first, named = tmp_path / "spend", tmp_path / "streams"
    first.mkdir()
    Publisher(DISK, named, "i0").close()
    state = begin(DISK, first, "fix1", 10)
    replay_of(DISK, state).retire(named)
    assert replayed(DISK, named, named / ".photon") is None
    replay_of(DISK, state).place()
    replay_of(DISK, state).retire(named)
    assert "streams.fix1" in str(replayed(DISK, named, named / ".photon"))
    replay_of(DISK, first).retire(named)
    assert not (tmp_path / "streams.fix1" / ".photon" / REPLAYED_NAME).exists()


def test_what_is_no_replay_is_refused(tmp_path: Path) -> None:
    first = tmp_path / "spend"
    with pytest.raises(UsageError, match="nothing to replay"):
        begin(DISK, first, "fix1", 10)
    first.mkdir()
    (tmp_path / "spend.mine").mkdir()
    for name, at, why in (("a/b", 1, "write letters"), ("mine", 1, "is not a replay"), ("fix1", None, "--from TIME")):
        with pytest.raises(UsageError, match=why):
            begin(DISK, first, name, at)
    begin(DISK, first, "fix1", 10)
    assert begin(DISK, first, "fix1", None) == begin(DISK, first, "fix1", 10)
    with pytest.raises(UsageError, match="another --name"):
        begin(DISK, first, "fix1", 11)
    (tmp_path / "spend.fix1" / "replay.json").write_bytes(b"{")
    with pytest.raises(UsageError, match="restore it"):
        replay_of(DISK, tmp_path / "spend.fix1")
