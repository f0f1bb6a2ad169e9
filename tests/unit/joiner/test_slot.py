"""A slot on disk: opening, lock, output, recovery, final files."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.api import Kind, Slot
from photon.idregistry.witness import Witnessed
from photon.joiner.opening import register_standing
from photon.joiner.slot.identity import OutOfStep, SlotRefused, SlotState, open_incarnation, read_state
from photon.joiner.slot.lock import SlotLock
from photon.joiner.slot.output import OutputDamaged, OutputLimits
from photon.joiner.slot.slot import REDONE_ROWS_MAX, Ages, SlotPaths, SlotStore
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from tests.unit.joiner.helpers import DIGESTER, SLOT, FakeRegistry, rows_for

TOKEN = 1 << 40 | 1
JOINED = "joined/s0-000001.jsonl"


def store_at(path: Path, **limits: float) -> SlotStore:
    options = OutputLimits(**limits)  # type: ignore[arg-type]
    return SlotStore(RealDisk(), SlotPaths(path / "state", path / "out"), "s0", output_limits=options)


def begun(path: Path, **limits: float) -> SlotStore:
    store = store_at(path, **limits)
    store.recover()
    return store


def logged(path: Path, ids: list[bytes]) -> tuple[SlotStore, list[bytes]]:
    """A slot with one logged frame; nothing of it is written."""
    store = begun(path)
    rows = rows_for(ids, TOKEN)
    store.log([(0, rows)])
    return store, rows.lines


def durable(path: Path) -> dict[str, int]:
    found: dict[str, int] = msgspec.json.decode((path / "state/durable.json").read_bytes())["files"]
    return found


def clear_all(path: Path, **trouble: int) -> None:
    target = path / "state/verifier/cleared.json"
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(msgspec.json.encode({"version": 1, "files": durable(path), "trouble": trouble}))


# -- opening -------------------------------------------------------------------------------------------------------
async def _no_pause(_: float) -> None:
    return None


async def opened(path: Path, registry: FakeRegistry, nonce: bytes, slot: Slot = SLOT) -> int:
    found = await open_incarnation(
        RealDisk(), path / "slot.json", slot, registry, draw_nonce=lambda: nonce, pause=_no_pause
    )
    return found.incarnation


async def test_each_start_is_another_incarnation(tmp_path: Path) -> None:
    registry = FakeRegistry()
    assert [await opened(tmp_path, registry, b"%d" % n) for n in range(3)] == [1, 2, 3]
    state = read_state(RealDisk(), tmp_path / "slot.json", SLOT)
    assert (state.last, state.nonce) == (3, "")


async def test_asks_with_the_same_nonce_until_it_knows(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.unknown_openings = 3
    assert await opened(tmp_path, registry, b"n") == 1
    assert registry.openings == 4


async def test_a_leftover_nonce_is_asked_with_and_then_replaced(tmp_path: Path) -> None:
    registry = FakeRegistry()
    registry.unknown_openings = 10**6

    class Killed(Exception):
        pass

    async def killed(_: float) -> None:
        raise Killed

    with pytest.raises(Killed):
        await open_incarnation(
            RealDisk(), tmp_path / "slot.json", SLOT, registry, draw_nonce=lambda: b"first", pause=killed
        )
    assert registry.model.slots["s0"] == (1, b"first")
    registry.unknown_openings = 0
    assert await opened(tmp_path, registry, b"second") == 2
    assert registry.model.slots["s0"] == (2, b"second")


async def test_a_directory_that_is_behind_is_refused(tmp_path: Path) -> None:
    registry = FakeRegistry()
    await opened(tmp_path, registry, b"a")
    copy = (tmp_path / "slot.json").read_bytes()
    await opened(tmp_path, registry, b"b")
    (tmp_path / "slot.json").write_bytes(copy)
    with pytest.raises(SlotRefused, match=r"knows incarnation 2.*remembers 1"):
        await opened(tmp_path, registry, b"c")


async def test_the_directory_of_another_slot_is_refused(tmp_path: Path) -> None:
    registry = FakeRegistry()
    await opened(tmp_path, registry, b"a")
    with pytest.raises(SlotRefused, match="belongs to slot s0"):
        await opened(tmp_path, registry, b"b", Slot("other", "dc0"))
    (tmp_path / "slot.json").write_bytes(b"{")
    with pytest.raises(SlotRefused, match="unreadable"):
        await opened(tmp_path, registry, b"b")


# -- lock ----------------------------------------------------------------------------------------------------------
def test_a_live_holder_keeps_others_out_and_a_dead_one_does_not(tmp_path: Path) -> None:
    holding = (
        "import sys; from pathlib import Path; from photon.joiner.slot.lock import SlotLock; "
        "lock = SlotLock(Path(sys.argv[1])); lock.take(); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", holding, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "held\n"
        waited: list[float] = []
        with pytest.raises(SlotRefused, match=f"locked by another live process .pid {child.pid}"):
            SlotLock(tmp_path).take(wait_s=0.2, sleep=waited.append)
        assert waited
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            pipe.close()
    lock = SlotLock(tmp_path)
    lock.take(wait_s=0.0)
    lock.release()


# -- recovery ------------------------------------------------------------------------------------------------------
def test_what_is_logged_and_not_written_is_kept(tmp_path: Path) -> None:
    store, lines = logged(tmp_path, [b"a", b"b"])
    store.close()
    recovered = store_at(tmp_path).recover()
    assert [rows.lines for _, rows in recovered.kept] == [lines]
    assert recovered.incarnations == (1,)


def test_what_was_written_without_a_sync_is_found_and_published(tmp_path: Path) -> None:
    store, lines = logged(tmp_path, [b"a", b"b"])
    store.write([(Kind.JOINED, lines[0])], 0.0)
    assert durable(tmp_path) == {}
    store.close()
    recovered = store_at(tmp_path).recover()
    assert [rows.lines for _, rows in recovered.kept] == [[lines[1]]]
    assert durable(tmp_path) == {JOINED: len(lines[0])}


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_torn_line_is_completed_where_only_one_logged_line_begins_so(tmp_path: Path, keep: int) -> None:
    store, lines = logged(tmp_path, [b"a"])
    store.write([(Kind.JOINED, lines[0][:keep])], 0.0)
    store.close()
    again = store_at(tmp_path)
    recovered = again.recover()
    assert (recovered.found.completed, recovered.kept) == ([JOINED], [])
    assert (tmp_path / "out" / JOINED).read_bytes() == lines[0]


async def test_what_stands_in_the_output_is_registered_again_beside_an_older_registry(tmp_path: Path) -> None:
    """It was restored from when the batch was only logged. A redo asks for missing lines, not for existing ones."""
    store, lines = logged(tmp_path, [b"whole", b"torn", b"missing"])
    store.write([(Kind.JOINED, lines[0] + lines[1][:9])], 0.0)
    store.close()
    registry = FakeRegistry()
    registry.down = {0, 1}
    again = store_at(tmp_path)
    again.check_age(SlotState(SLOT.name, SLOT.datacentre, 1), Witnessed(1, ()), ages=Ages(own_registry=True))

    async def comes_back(_: float) -> None:
        registry.down.clear()

    await register_standing(SLOT, 2, again, registry, comes_back)
    assert registry.announced == (SLOT, [1, 2])
    assert set(registry.model.owned()) == {DIGESTER.digest(b"whole"), DIGESTER.digest(b"torn")}
    recovered = again.recover()
    assert [rows.lines for _, rows in recovered.kept] == [lines[2:]]
    assert (tmp_path / "out" / JOINED).read_bytes() == b"".join(lines[:2])


def test_a_torn_line_that_may_be_of_two_is_cut(tmp_path: Path) -> None:
    store, lines = logged(tmp_path, [b"a", b"b"])
    store.write([(Kind.JOINED, lines[0][:5])], 0.0)
    store.close()
    recovered = store_at(tmp_path).recover()
    assert recovered.found.cut == [JOINED]
    assert [rows.lines for _, rows in recovered.kept] == [lines]
    assert (tmp_path / "out" / JOINED).read_bytes() == b""


def test_a_hole_left_by_a_power_cut_is_cut_with_all_after_it(tmp_path: Path) -> None:
    store, lines = logged(tmp_path, [b"a", b"b", b"c"])
    store.write([(Kind.JOINED, lines[0] + bytes(30) + b"\n" + lines[2])], 0.0)
    store.close()
    recovered = store_at(tmp_path).recover()
    assert (tmp_path / "out" / JOINED).read_bytes() == lines[0]
    assert [rows.lines for _, rows in recovered.kept] == [lines[1:]]


def test_lost_durable_output_stops_the_start(tmp_path: Path) -> None:
    store, lines = logged(tmp_path, [b"a"])
    store.write([(Kind.JOINED, lines[0])], 0.0)
    store.sync_output(0.0)
    store.close()
    (tmp_path / "out" / JOINED).write_bytes(lines[0][:-1])
    with pytest.raises(OutputDamaged, match="had been made durable"):
        store_at(tmp_path).recover()
    (tmp_path / "out" / JOINED).unlink()
    with pytest.raises(OutputDamaged, match="the file is gone"):
        store_at(tmp_path).recover()


def test_a_row_in_two_frames_counts_once(tmp_path: Path) -> None:
    store, lines = logged(tmp_path, [b"a", b"b"])
    store.log([(1, rows_for([b"b"], TOKEN))])
    store.close()
    recovered = store_at(tmp_path).recover()
    assert [line for _, rows in recovered.kept for line in rows.lines] == lines


# -- output and final files ----------------------------------------------------------------------------------------
def test_files_roll_by_size_and_age_and_numbers_go_on(tmp_path: Path) -> None:
    store = begun(tmp_path, roll_bytes=10, roll_after_s=60.0)
    store.write([(Kind.JOINED, b"0123456789\n"), (Kind.REJECTED, b"r\n")], 0.0)
    store.sync_output(1.0)
    store.write([(Kind.JOINED, b"second\n")], 2.0)
    store.sync_output(59.0)
    store.sync_output(60.0)
    assert durable(tmp_path) == {JOINED: 11, "joined/s0-000002.jsonl": 7, "rejected/s0-000001.jsonl": 2}
    store.write([(Kind.REJECTED, b"q\n")], 61.0)
    store.close()
    again = begun(tmp_path)
    assert again.place()[0] == (2, 7)
    assert again.place()[3] == (2, 2)


LINE = b'{"event_id":"one","key":"k","event_time_ns":7,"foreign":{}}\n'
FORMS = pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])


def final(path: Path, line: bytes = LINE, *, compress: bool = False) -> SlotStore:
    """A slot whose first file is listed in the manifest; ``durable.json`` names it still."""
    store = begun(path, roll_bytes=1, compress=compress)
    store.write([(Kind.JOINED, line)], 0.0)
    store.sync_output(0.0)
    assert store.cleared() == []
    clear_all(path)
    assert store.cleared() == [JOINED]
    store.finish(JOINED)
    return store


def listed(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in (path / "state/manifest.jsonl").read_bytes().splitlines()]


def checks_age(store: SlotStore) -> None:
    store.check_age(SlotState(SLOT.name, SLOT.datacentre, 1), Witnessed(1, ()))


@FORMS
def test_rolled_and_cleared_files_become_final(tmp_path: Path, *, compress: bool) -> None:
    store = final(tmp_path, compress=compress)
    store.forget([JOINED])
    plain, packed = tmp_path / "out" / JOINED, tmp_path / "out" / (JOINED + ".gz")
    stored = packed if compress else plain
    assert (gzip.decompress(packed.read_bytes()) if compress else plain.read_bytes()) == LINE
    assert [plain.exists(), packed.exists()] == [not compress, compress]
    assert durable(tmp_path) == {}
    (entry,) = listed(tmp_path)
    assert (entry["file"], entry["records"]) == (f"joined/{stored.name}", 1)
    assert (entry["uncompressed_bytes"], entry["bytes"]) == (len(LINE), stored.stat().st_size)
    assert entry["crc32"] == zlib.crc32(LINE)
    assert (entry["version"], entry["first_ns"], entry["last_ns"]) == (1, 7, 7)
    store.close()
    stored.unlink()  # shipped away: its number is not used again
    again = begun(tmp_path)
    assert again.place()[0][0] == 2


def test_a_file_with_trouble_never_becomes_final(tmp_path: Path) -> None:
    store = begun(tmp_path, roll_bytes=1)
    store.write([(Kind.JOINED, b"one\n")], 0.0)
    store.sync_output(0.0)
    clear_all(tmp_path, **{JOINED: 1})
    assert store.cleared() == []


@FORMS
def test_a_start_finishes_a_listed_file_and_repeats_an_unlisted_one(tmp_path: Path, *, compress: bool) -> None:
    store = begun(tmp_path, roll_bytes=1)
    store.write([(Kind.JOINED, b"one\n")], 0.0)
    store.sync_output(0.0)
    clear_all(tmp_path)
    plain, packed = tmp_path / "out" / JOINED, tmp_path / "out" / (JOINED + ".gz")
    packed.write_bytes(b"of a crashed run, not listed")
    store.close()
    again = begun(tmp_path, roll_bytes=1, compress=compress)
    assert again.cleared() == [JOINED]
    again.finish(JOINED)
    again.close()
    plain.write_bytes(b"one\n")  # of compressed ones: killed before the removal was durable
    begun(tmp_path)
    assert [plain.exists(), packed.exists()] == [not compress, compress]
    assert durable(tmp_path) == {}
    assert msgspec.json.decode((tmp_path / "state/durable.json").read_bytes())["rolled"] == []


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_final_plain_file_is_neither_continued_nor_looked_into(tmp_path: Path, *, forgotten: bool) -> None:
    """Although one of its rows is still in the redo log, and it is the newest of its kind."""
    rows = rows_for([b"a", b"b"], TOKEN)
    store = final(tmp_path, rows.lines[0])
    if forgotten:
        store.forget([JOINED])
    store.log([(0, rows)])
    store.close()
    again = store_at(tmp_path)
    checks_age(again)
    assert again.standing() == []
    recovered = again.recover()
    assert (recovered.found.lines, recovered.found.cut, recovered.found.completed) == (set(), [], [])
    assert [kept.lines for _, kept in recovered.kept] == [rows.lines]
    assert again.place()[0] == (2, 0)
    again.write([(Kind.JOINED, rows.lines[1])], 0.0)
    again.sync_output(0.0)
    assert (tmp_path / "out" / JOINED).read_bytes() == rows.lines[0]
    assert durable(tmp_path) == {"joined/s0-000002.jsonl": len(rows.lines[1])}
    assert again.cleared() == []
    again.close()


def test_a_final_plain_file_may_be_moved_away_or_compressed_by_hand(tmp_path: Path) -> None:
    store = final(tmp_path)
    store.forget([JOINED])
    witness = store.witness
    store.close()
    path = tmp_path / "out" / JOINED
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    for _ in range(2):
        again = store_at(tmp_path)
        again.check_witness(witness)
        checks_age(again)
        again.recover()
        assert again.place()[0] == (2, 0)
        again.close()
        path.with_name(path.name + ".gz").unlink(missing_ok=True)


def test_a_final_plain_file_that_is_cut_short_stops_the_start_unless_readers_skip_it(tmp_path: Path) -> None:
    store = final(tmp_path)
    store.forget([JOINED])
    witness = store.witness
    store.close()
    (tmp_path / "out" / JOINED).write_bytes(LINE[:-1])
    again = store_at(tmp_path)
    with pytest.raises(OutOfStep, match="had been made durable"):
        checks_age(again)
    with pytest.raises(OutOfStep, match="the registry has witnessed"):
        again.check_witness(witness)
    lost = DamagedRange(JOINED, 0, len(LINE), "is cut short", "")
    add_damaged(RealDisk(), tmp_path / "state", "s0", [lost])
    again = store_at(tmp_path)
    again.check_witness(witness)
    checks_age(again)
    again.recover()
    assert (tmp_path / "out" / JOINED).read_bytes() == LINE[:-1]
    again.close()


def test_both_forms_may_stand_in_one_manifest(tmp_path: Path) -> None:
    final(tmp_path, compress=True).close()
    store = begun(tmp_path, roll_bytes=1)
    store.write([(Kind.JOINED, b"{}\n")], 0.0)
    store.sync_output(0.0)
    clear_all(tmp_path)
    (second,) = store.cleared()
    store.finish(second)
    store.forget([second])
    store.close()
    assert [each["file"] for each in listed(tmp_path)] == [JOINED + ".gz", "joined/s0-000002.jsonl"]
    again = begun(tmp_path, compress=True)
    assert again.place()[0] == (3, 0)
    assert again.cleared() == []  # what is final keeps its form
    again.close()


def test_a_rewrite_changes_neither_bytes_nor_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)) * 100)
    inode = path.stat().st_ino
    RealDisk().rewrite(path, 1000)
    assert path.read_bytes() == bytes(range(256)) * 100
    assert path.stat().st_ino == inode


# -- many small frames ---------------------------------------------------------------------------------------------
def test_a_start_puts_small_frames_together(tmp_path: Path) -> None:
    """An hour of single events is requested in a few questions, not in thousands at once."""
    store = begun(tmp_path)
    each = [rows_for([b"e%d" % n], TOKEN + n) for n in range(REDONE_ROWS_MAX + 10)]
    store.log(list(enumerate(each)))
    store.close()
    again = store_at(tmp_path)
    kept = again.recover().kept
    assert [number for number, _ in kept] == [0, 1]
    assert [len(rows) for _, rows in kept] == [REDONE_ROWS_MAX, 10]
    assert [line for _, rows in kept for line in rows.lines] == [line for rows in each for line in rows.lines]
    assert [int(token) for _, rows in kept for token in rows.tokens] == [TOKEN + n for n in range(len(each))]
    again.close()
    third = store_at(tmp_path)  # what the second start has logged is the same
    assert [rows.lines for _, rows in third.recover().kept] == [rows.lines for _, rows in kept]
    third.close()


def test_an_id_under_two_tokens_is_asked_for_in_two_frames(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.log(
        [(0, rows_for([b"a", b"b"], TOKEN)), (1, rows_for([b"c"], TOKEN + 1)), (2, rows_for([b"a"], TOKEN + 2))]
    )
    store.close()
    again = store_at(tmp_path)
    kept = [rows for _, rows in again.recover().kept]
    assert [[int(token) for token in rows.tokens] for rows in kept] == [[TOKEN, TOKEN, TOKEN + 1], [TOKEN + 2]]
    again.close()
