"""The contract of stores, held by each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.intervals import Interval, even
from photon.computing.store import Chunk, Commit, Due, Row, Store, in_file, in_memory, on_hbase
from tests.unit.computing.fake_thrift import FakeHBase

INTERVAL = even(2).all[1]


@pytest.fixture(params=["memory", "sqlite", "hbase"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same store each time."""
    if request.param == "memory":
        memory = in_memory(INTERVAL)
        return lambda: memory
    if request.param == "hbase":
        server = FakeHBase()
        return lambda: on_hbase(server.opened(), "topology", INTERVAL)
    return lambda: in_file(tmp_path / "store.db", INTERVAL)


def test_all_of_a_commit_is_there(opened: Callable[[], Store]) -> None:
    store = opened()
    rows = [
        Row("c", "a", b"1", 10, None),
        Row("c", "b", b"2", 5, 7),
        Row("c", "ü", b"3", None, None, 2),
        Row("d", "a", b"4", 1),
    ]
    chunks = [Chunk("i1", "i0", 5, b"five"), Chunk("i1", "i0", 15, b"fifteen"), Chunk("i1", "publish:x", 6, b"six")]
    store.commit(store.acquire("me"), Commit(rows, chunks, (), b"standing"))
    again = opened()
    assert again.interval == INTERVAL
    assert again.standing() == b"standing"
    assert again.load("c", ["a", "ü", "none"]) == {"a": rows[0], "ü": rows[2]}
    assert again.due("c", False, 10, 9) == [Due(5, "b"), Due(10, "a")]
    assert again.due("c", False, 10, 1) == [Due(5, "b")]
    assert again.due("c", True, 10, 9) == [Due(7, "b")]
    assert list(again.aside()) == [("c", "ü", 2)]
    assert sorted(again.scan()) == sorted(rows)
    assert list(again.chunks()) == [chunks[0], chunks[2], chunks[1]]


def test_rows_are_replaced_and_removed_and_chunks_are_done(opened: Callable[[], Store]) -> None:
    store = opened()
    sequencer = store.acquire("me")
    chunks = [Chunk("i1", "i0", number, b"") for number in (5, 15)]
    store.commit(sequencer, Commit([Row("c", "a", b"1", 10), Row("c", "b", b"2", 5)], chunks))
    renewed = Chunk("i1", "i0", 15, b"renewed")
    store.commit(sequencer, Commit([Row("c", "a", b"new"), Row("c", "b", None)], [renewed], [("i1", "i0", 15)]))
    assert list(store.scan()) == [Row("c", "a", b"new")]
    assert store.due("c", False, 100, 9) == []
    assert list(store.chunks()) == [renewed]


def test_whoever_was_replaced_writes_nothing(opened: Callable[[], Store]) -> None:
    old, new = opened(), opened()
    before = old.acquire("old")
    after = new.acquire("new")
    assert after > before
    with pytest.raises(Fenced, match="another process has taken over the interval i1"):
        old.commit(before, Commit([Row("c", "a", b"1")]))
    with pytest.raises(Fenced):
        old.retire(before, ("x",))
    assert list(new.scan()) == []


def test_whatever_is_retired_is_not_used_but_may_be_revived(opened: Callable[[], Store]) -> None:
    store = opened()
    sequencer = store.acquire("me")
    store.retire(sequencer, ("x", "y"))
    assert store.successors() == ("x", "y")
    with pytest.raises(Retired, match="its keys are now in x, y"):
        store.commit(sequencer, Commit())
    with pytest.raises(Retired):
        store.acquire("me")
    store.commit(store.acquire("me", revive=True), Commit())


def test_parts_of_a_key_are_its_own(opened: Callable[[], Store]) -> None:
    store = opened()
    keys = ["a", "a\0m:x", "a\0", "ab", "long" * 500, "long" * 500 + "er"]
    rows = [Row("c", key, b"own") for key in keys]
    rows += [
        Row(f"c/{part}", key, f"{part} of {key}".encode()) for key in keys for part in ("m:x", "m:y", "mm:z", "0")
    ]
    store.commit(store.acquire("me"), Commit(rows))
    store = opened()
    sequencer = store.acquire("me")
    for key in keys:
        assert [row.data for row in store.parts("c/m:", key)] == [f"m:{at} of {key}".encode() for at in "xy"]
        assert store.load("c", [key])[key].data == b"own"
        assert store.load("c/0", [key])[key].data == f"0 of {key}".encode()
    store.commit(sequencer, Commit([Row("c/m:x", key, None) for key in keys]))
    assert [row.computation for key in keys for row in opened().parts("c/m:", key)] == ["c/m:y"] * len(keys)
    assert len(list(opened().scan())) == 4 * len(keys)


def test_many_keys_are_loaded_at_once(opened: Callable[[], Store]) -> None:
    store = opened()
    rows = [Row("c", f"k{n}", b"1") for n in range(1_700)]
    store.commit(store.acquire("me"), Commit(rows))
    assert len(store.load("c", [row.key for row in rows])) == 1_700


@pytest.mark.parametrize("size", [40, 5_000])
@pytest.mark.parametrize("what", [b"row", b"standing", b"chunk"])
def test_flipped_bits_are_noticed(tmp_path: Path, what: bytes, size: int) -> None:
    path = tmp_path / "store.db"
    store = in_file(path, INTERVAL)
    row, chunk, standing = (each * size for each in (b"row", b"chunk", b"standing"))
    store.commit(store.acquire("me"), Commit([Row("c", "a", row)], [Chunk("i1", "i0", 5, chunk)], (), standing))
    store.close()
    data = bytearray(path.read_bytes())
    data[data.index(what * 40)] ^= 1
    path.write_bytes(data)
    store = in_file(path, INTERVAL)
    reads = {b"row": lambda: list(store.scan()), b"standing": store.standing, b"chunk": lambda: list(store.chunks())}
    with pytest.raises(ComputingError, match=r"a checksum is wrong.*restore a backup"):
        reads[what]()
    store.close()


def test_a_store_of_another_interval_is_said(tmp_path: Path) -> None:
    in_file(tmp_path / "store.db", INTERVAL).close()
    with pytest.raises(ComputingError, match=r"store.db: has the interval i1 \(0x80000000 to 0x100000000\), not "):
        in_file(tmp_path / "store.db", Interval(0, 5, "i7"))
    assert in_file(tmp_path / "store.db").interval == INTERVAL
    with pytest.raises(ComputingError, match=r"none.db: its interval is missing"):
        in_file(tmp_path / "none.db")
