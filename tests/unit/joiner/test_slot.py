"""A slot on disk: opening, lock, output, recovery, final files."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.api import Kind, Slot, token_of
from photon.idregistry.witness import Witness, Witnessed
from photon.joiner.opening import register_standing
from photon.joiner.slot.identity import SlotRefused, SlotState, open_incarnation, read_state
from photon.joiner.slot.lock import SlotLock
from photon.joiner.slot.output import OutputDamaged, OutputLimits
from photon.joiner.slot.redo_log import RedoLogDamaged
from photon.joiner.slot.slot import REDONE_ROWS_MAX, Ages, SlotPaths, SlotStore
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from tests.kit.stories import Story, stories
from tests.unit.joiner.helpers import DIGESTER, SLOT, FakeRegistry, rows_for

TOKEN = 1 << 40 | 1
JOINED = "joined/s0-000001.jsonl"


def store_at(path: Path) -> SlotStore:
    return SlotStore(RealDisk(), SlotPaths(path / "state", path / "out"), "s0")


class SlotDisk:
    """A slot's directories. ``joined-1`` is a file of output; ``a`` is the line of an id, ``a/9`` its first bytes,
    ``t7`` one with that event time, ``hole`` what a power cut may leave in place of a line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store: SlotStore | None = None
        self.lines: dict[str, bytes] = {}
        self.witness: Witness = ()

    def begin(self, *flags: str, roll: str = "", age: str = "", segment: str = "") -> Iterator[str]:
        """A start, after a kill. ``check``, ``witness``: it compares ages. ``accept``: takes damage."""
        self.kill()
        options: dict[str, Any] = {"roll_bytes": int(roll)} if roll else {}
        options |= ({"roll_after_s": float(age)} if age else {}) | {"compress": "compress" in flags}
        self.store = SlotStore(
            RealDisk(),
            SlotPaths(self.path / "state", self.path / "out"),
            "s0",
            output_limits=OutputLimits(**options),
            segment_bytes=int(segment or 1 << 20),
        )
        try:
            if "witness" in flags:
                self.store.check_witness(self.witness)
            if "check" in flags:
                self.store.check_age(SlotState(SLOT.name, SLOT.datacentre, 1), Witnessed(1, ()))
            recovered = self.store.recover(accept_damaged_log="accept" in flags)
        except (OSError, SlotRefused, OutputDamaged, RedoLogDamaged) as error:
            yield f"refused: {str(error).replace(str(self.path) + '/', '').partition('. Restore its newest')[0]}"
            return
        for _, rows in recovered.kept:
            yield f"kept {' '.join(self._ids(b''.join(rows.lines)))}"
        yield from (f"completed {_short(name)}" for name in recovered.found.completed)
        yield from (f"cut {_short(name)}" for name in recovered.found.cut)
        yield from (f"lost {each.size} bytes at {each.offset} of {each.path.name}" for each in recovered.lost)

    def kill(self) -> None:
        if self.store is not None:
            self.store.close()

    def log(self, *ids: str, batch: str = "1") -> None:
        """One frame."""
        rows = rows_for([each.encode() for each in ids], token_of(1, int(batch)))
        self.lines |= dict(zip(ids, rows.lines, strict=True))
        self._store.log([(len(self.lines), rows)])

    def write(self, *chunks: str) -> None:
        """``kind:line,line`` each."""
        logs = []
        for each in chunks:
            kind, _, lines = each.partition(":")
            logs.append((Kind[kind.upper()], b"".join(self._line(line) for line in lines.split(","))))
        self._store.write(logs, 0.0)

    def sync(self, at: str = "0") -> None:
        self._store.sync_output(float(at))

    def published(self, file: str = "durable") -> str:
        found = msgspec.json.decode((self.path / f"state/{file}.json").read_bytes())
        sizes = [f"{_short(name)} {size}" for name, size in sorted(found["files"].items())]
        return ", ".join(sizes + [f"rolled {_short(name)}" for name in found.get("rolled", ())]) or "nothing"

    def redone(self, upto: str) -> str:
        self._store.publish_redone(int(upto))
        return self.published("redone")

    def output(self) -> Iterator[str]:
        for file in sorted((self.path / "out").rglob("s0-*")):
            data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
            torn = len(data) - data.rfind(b"\n") - 1
            ids = [*self._ids(data), *[f"{torn} bytes"] * (torn > 0)]
            yield f"{_short(f'{file.parent.name}/{file.name}')}: {' '.join(ids)}"

    def next_files(self) -> str:
        return " ".join(f"{number}/{length}" for number, length in self._store.place())

    # -- final files -------------------------------------------------------------------------------------------------
    def clear(self, *trouble: str) -> None:
        """The verifier clears all that is published; of these files not every line."""
        files = msgspec.json.decode((self.path / "state/durable.json").read_bytes())["files"]
        target = self.path / "state/verifier/cleared.json"
        target.parent.mkdir(exist_ok=True)
        found = {"version": 1, "files": files, "trouble": {_long(each): 1 for each in trouble}}
        target.write_bytes(msgspec.json.encode(found))

    def cleared(self) -> Iterator[str]:
        return map(_short, self._store.cleared())

    def finish(self, *forget: str) -> None:
        """Makes what is cleared final."""
        names = self._store.cleared()
        for name in names:
            self._store.finish(name)
        if forget:
            self._store.forget(names)

    def manifest(self) -> Iterator[str]:
        for line in (self.path / "state/manifest.jsonl").read_bytes().splitlines():
            entry = msgspec.json.decode(line)
            stored = self.path / "out" / entry["file"]
            assert not stored.exists() or entry["bytes"] == stored.stat().st_size
            shown = f"{_short(entry['file'])} {entry['records']} lines, {entry['uncompressed_bytes']} bytes"
            whole = entry["crc32"] == zlib.crc32(b"".join(self.lines.values()))
            shown += f"{', of all lines' * whole}"
            if "first_ns" in entry:
                shown += f", times {entry['first_ns']} to {entry['last_ns']}"
            yield shown

    # -- what happens to files ---------------------------------------------------------------------------------------
    def remember_witness(self) -> None:
        self.witness = self._store.witness

    def remove(self, name: str) -> None:
        self._file(name).unlink()

    def shorten(self, name: str, by: str) -> None:
        self._file(name).write_bytes(self._file(name).read_bytes()[: -int(by)])

    def put(self, name: str, *ids: str) -> None:
        self._file(name).parent.mkdir(parents=True, exist_ok=True)
        self._file(name).write_bytes(b"".join(map(self._line, ids)))

    def pack(self, name: str) -> None:
        """By hand."""
        packed = gzip.compress(self._file(name).read_bytes())
        self._file(name).with_name(self._file(name).name + ".gz").write_bytes(packed)
        self.remove(name)

    def mark_damaged(self, name: str) -> None:
        lost = DamagedRange(_long(name), 0, self._file(name).stat().st_size + 1, "is cut short", "")
        add_damaged(RealDisk(), self.path / "state", "s0", [lost])

    def rot(self, what: str) -> None:
        """A bit of this text in the redo log flips."""
        for segment in sorted((self.path / "state/redo").glob("*.redo")):
            data = bytearray(segment.read_bytes())
            if (at := data.find(what.encode())) >= 0:
                data[at] ^= 1
                segment.write_bytes(data)
                return
        raise AssertionError(what)

    def tear_log(self, by: str) -> None:
        segment = max((self.path / "state/redo").glob("*.redo"))
        segment.write_bytes(segment.read_bytes()[: -int(by)])

    def set_aside(self) -> str:
        return " ".join(each.name for each in (self.path / "state/redo").glob("damaged-*")) or "nothing"

    @property
    def _store(self) -> SlotStore:
        assert self.store is not None
        return self.store

    def _line(self, word: str) -> bytes:
        name, _, count = word.partition("/")
        if name == "hole":
            return bytes(30) + b"\n"
        if name[0] == "t" and name[1:].isdigit():
            line = b'{"event_id":"%b","key":"k","event_time_ns":%d,"foreign":{}}\n' % (name.encode(), int(name[1:]))
            return self.lines.setdefault(name, line)
        line = self.lines.setdefault(name, rows_for([name.encode()], TOKEN).lines[0])
        return line[: int(count)] if count else line

    def _ids(self, data: bytes) -> list[str]:
        return re.findall(r'id":"(.*?)"', data[: data.rfind(b"\n") + 1].decode())

    def _file(self, name: str) -> Path:
        return self.path / "out" / _long(name)


def _long(name: str) -> str:
    kind, _, number = name.partition("-")
    number, _, packed = number.partition(".")
    return f"{kind}/s0-{int(number):06}.jsonl{'.gz' * bool(packed)}"


def _short(name: str) -> str:
    kind, _, file = name.partition("/")
    return f"{kind}-{int(file[3:9])}{'.gz' * file.endswith('.gz')}"


@pytest.mark.parametrize("story", stories(__file__, "slot.txt"), ids=str)
def test_it_answers_as_its_stories_tell(story: Story, golden: Any, tmp_path: Path) -> None:
    disk = SlotDisk(tmp_path)
    golden(story, story.told_by(disk))
    disk.kill()


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


async def test_what_stands_in_the_output_is_registered_again_beside_an_older_registry(tmp_path: Path) -> None:
    """It was restored from when the batch was only logged. A redo asks for missing lines, not for existing ones."""
    store, rows = store_at(tmp_path), rows_for([b"whole", b"torn", b"missing"], TOKEN)
    lines = rows.lines
    store.recover()
    store.log([(0, rows)])
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
    store = store_at(tmp_path)
    store.recover()
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
