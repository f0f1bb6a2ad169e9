"""Writes a published log: appends lines, syncs them, and then publishes their length.

A slot's files are ``<root>/<kind>/<slot>-<6 digits>.jsonl``; ``durable.json`` in its state directory has their
readable lengths. Invariants, even if the process is killed or the power fails at any moment:

1. published <= durable <= appended: files and directory entries are synced before ``durable.json`` is replaced.
2. A published prefix never changes, and its length never falls.
3. A file is complete and synced before its successor exists (``roll``).
4. A start cuts only unpublished lines that will be written again (``recover``). Other lines come from a lost state,
and readers may have seen them: they stay, and the log continues in another file.
5. If ``durable.json`` is missing or older than the writer's state, a start is refused (``expect``).
6. A copy is a byte prefix of its source, and publishes only bytes that its source has published and that it holds
durably (``outputs.log.copier``, ``joiner.copies``).
7. Nothing is cleared beyond what the required copy holds (``clearable`` in ``durable.json``, ``joiner.slot.output``).
8. A damaged range is one entry of the format, which every reader skips and reports (``outputs.damaged``).

A joiner's slot also writes through this module, but recovers differently (``photon.joiner.slot``): its redo log has
the lines that will be written again, and readers see only output that the registry has witnessed.

``tests/simulation/log`` attacks rules 1 to 6, ``tests/simulation/copies`` 6 and 7, and ``tests/unit/outputs`` 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from photon.config.disk import AppendFile, Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import read_versioned
from photon.outputs.log.format import DURABLE_NAME, PLAIN_SUFFIX, Durable, name_of, number_of, numbers_of
from photon.outputs.published import PublishedDamaged

ROLL_BYTES = 128 << 20
LOOK_BYTES = 1 << 16


class NotOfThisState(UsageError):
    """Published files and their publisher's state do not belong together."""

    exit_code = 3


class LogWriter:
    """The files of one slot. Not thread-safe; the caller ensures that no other process writes them."""

    def __init__(
        self,
        disk: Disk,
        root: Path,
        state: Path,
        slot: str,
        kinds: Sequence[str],
        *,
        roll_bytes: int = ROLL_BYTES,
        roll_after_s: float = math.inf,
    ) -> None:
        """Call ``load`` first."""
        self.disk, self.root, self.state, self.slot, self.kinds = disk, root, state, slot, tuple(kinds)
        self._roll_bytes, self._roll_after_s = roll_bytes, roll_after_s
        self.lengths: dict[str, int] = {}  # name of a file -> its durable bytes
        self.rolled: set[str] = set()  # files that never grow again
        self.published: dict[str, int] = {}  # name of a file -> the bytes that readers see
        # The end of the log from which these lines come; with numbered rows: 0 and the newest one's number.
        self.log: tuple[int, int] | None = None
        self.current = dict.fromkeys(self.kinds, 1)  # kind -> the number of the current file
        self._files: dict[str, AppendFile] = {}
        self._opened_at: dict[str, float] = {}  # when this process first wrote to the open file
        self._unsynced: set[str] = set()  # kinds whose open file has bytes, or a name, that are not durable

    @property
    def upto(self) -> int:
        """The number of the last published row, for writers with numbered rows; -1 if there is none."""
        return -1 if self.log is None else self.log[1]

    def name(self, kind: str, number: int, suffix: str = PLAIN_SUFFIX) -> str:
        """Returns the name of a file, relative to ``root``."""
        return name_of(kind, self.slot, number, suffix)

    def path(self, kind: str) -> Path:
        """Returns the path of the current file."""
        return self.root / self._current(kind)

    def end(self, kind: str) -> int:
        """Returns the size of the current file of a kind."""
        return self._files[kind].size if kind in self._files else self._size(self._current(kind))

    def numbers(self, kind: str, suffix: str = PLAIN_SUFFIX) -> list[int]:
        """Returns the numbers of the existing files, in order."""
        return numbers_of(self.disk.names(self.root / kind), self.slot, suffix)

    # -- at start ----------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Reads ``durable.json``; changes no file. Raises PublishedDamaged, OSError."""
        if self.disk.exists(self.state / DURABLE_NAME):
            # It may be only in the cache, but the sender forgets its rows because of it.
            self.disk.rewrite(self.state / DURABLE_NAME, 0)
            self.disk.sync_dir(self.state)
        self._read(PublishedDamaged)
        for kind in self.kinds:
            newest = self._newest_published(kind)
            self.current[kind] = max(1, newest + (self.name(kind, newest) in self.rolled))

    def _read(self, damaged: Callable[[Path, str], Exception]) -> None:
        durable = read_versioned(self.disk, self.state / DURABLE_NAME, Durable, damaged)
        if durable is None:
            return
        if durable.slot != self.slot:
            raise damaged(self.state / DURABLE_NAME, f"belongs to slot {durable.slot}, not {self.slot}")
        self.log, self.published = durable.log, durable.files
        self.lengths = dict(durable.files if durable.durable is None else durable.durable)
        self.rolled = set(durable.rolled if durable.closed is None else durable.closed)

    def expect(self, upto: int, where: str) -> None:
        """Raises NotOfThisState if less is published than ``upto``, the last row published according to ``where``.
        Call it before ``recover``.
        """
        if self.upto >= upto:
            return
        kept = f"ends with record {self.upto}" if self.upto >= 0 else f"has nothing ({DURABLE_NAME})"
        raise NotOfThisState(
            f"{self.root}: {self.slot} {kept} here, but {where} has published it up to record {upto}: restore "
            f"all of the newest {self.root}, with {self.state / DURABLE_NAME}, or write into another directory"
        )

    def expect_nothing(self, where: str) -> None:
        """Raises NotOfThisState if there are lines. Call it before ``recover`` if ``where`` has written none."""
        if found := [self.name(kind, number) for kind in self.kinds for number in self._written(kind)]:
            raise NotOfThisState(
                f"{self.root / found[0]}: {where} has written nothing yet: restore the state that this output "
                "belongs to, or write into another directory"
            )

    def recover(self, kind: str, again: Collection[bytes] | None = None) -> bool:
        """Cuts unpublished lines. ``again``: the lines that will be written again; ``None`` means all existing ones.

        Returns True if the log continues where it ended. Otherwise it continues in a new file, and the old one is
        published up to its last whole line. Raises PublishedDamaged if published bytes are missing, OSError.
        """
        number = self._newest_published(kind)
        newest = self.name(kind, number)
        length = self.published.get(newest, 0)
        if (size := self._size(newest)) < length:
            raise PublishedDamaged(self.root / newest, f"has {size} bytes, but {length} were published")
        behind = {newest: length} | {self.name(kind, each): 0 for each in self.numbers(kind) if each > number}
        if again is not None and not self._is_again(behind, again):
            self._keep(kind)
            return False
        for name, end in behind.items():
            if self._size(name) > end:
                self.disk.truncate(self.root / name, end)
        return True

    def skip(self, kind: str) -> None:
        """Continues in a new file, because the current one is damaged."""
        self.current[kind] = max([self.current[kind], *self._written(kind)]) + 1
        self.rolled.update(name for name in self.lengths if name.startswith(f"{kind}/"))

    def forget(self, names: Collection[str]) -> None:
        """Drops the files from ``durable.json`` when it is next published."""
        for name in names:
            self.lengths.pop(name, None)
            self.rolled.discard(name)

    def _is_again(self, behind: Mapping[str, int], again: Collection[bytes]) -> bool:
        data = [self.disk.read(self.root / name, at) for name, at in behind.items() if self._size(name) > at]
        # After a power cut there may be holes, and a torn end.
        lines = (line for each in data for line in each.split(b"\n")[:-1] if b"\0" not in line)
        return sum(map(len, data)) <= sum(map(len, again)) and all(line + b"\n" in again for line in lines)

    def _keep(self, kind: str) -> None:
        for number in self._written(kind):
            name = self.name(kind, number)
            whole, length = self._whole(self.root / name), self.lengths.get(name, 0)
            if whole > length:
                self.disk.rewrite(self.root / name, length)  # it may be only in the cache
                self.lengths[name] = whole
        self.disk.sync_dir(self.root / kind)
        self.skip(kind)

    def _whole(self, path: Path) -> int:
        """Returns the length of a file up to its last line end."""
        at = self.disk.size(path)
        while at:
            begin = max(0, at - LOOK_BYTES)
            if end := self.disk.read(path, begin, at - begin).rfind(b"\n") + 1:
                return begin + end
            at = begin
        return 0

    def newest(self) -> dict[str, str]:
        """Returns the newest published file of each kind that has one."""
        numbers = {kind: self._newest_published(kind) for kind in self.kinds}
        return {kind: self.name(kind, number) for kind, number in numbers.items() if number}

    def _newest_published(self, kind: str) -> int:
        """Returns the number of the newest file of a kind; 0 if there is none."""
        return max((number_of(name) for name in self.published if name.startswith(f"{kind}/")), default=0)

    def _written(self, kind: str) -> list[int]:
        """Returns the numbers of the files that are not empty."""
        return [number for number in self.numbers(kind) if self._size(self.name(kind, number))]

    # -- writing -----------------------------------------------------------------------------------------------
    def append(self, kind: str, lines: bytes, now: float = 0.0) -> None:
        """Appends whole lines. ``now``: monotonic seconds. Raises OSError: then the process must end."""
        if kind not in self._files:
            self.disk.make_dir(self.root / kind)
            self._files[kind] = self.disk.append(self.path(kind))
        self._opened_at.setdefault(kind, now)
        self._files[kind].write(lines)
        self._unsynced.add(kind)

    def sync(self) -> bool:
        """Makes appended lines durable without publishing them. Returns True if there were any.

        Raises OSError: then the process must end.
        """
        grown = sorted(self._unsynced)
        for kind in grown:
            file, name = self._files[kind], self._current(kind)
            file.sync()
            if name not in self.lengths:
                self.disk.sync_dir(self.root / kind)
            self.lengths[name] = file.size
        self._unsynced.clear()
        return bool(grown)

    def roll(self, now: float | None = None) -> list[str]:
        """Permanently closes files that are due at ``now``; ``None`` means all non-empty files. Returns their kinds.
        Raises OSError, like ``sync``.
        """
        due = [kind for kind, file in self._files.items() if file.size and (now is None or self._is_due(kind, now))]
        for kind in due:
            self.go_on(kind, self.current[kind] + 1)
        return due

    def go_on(self, kind: str, number: int) -> None:
        """Permanently closes the file of a kind, and continues in file ``number``. Raises OSError, like ``sync``."""
        self.sync()
        if kind in self._files:
            self._files.pop(kind).close()
            self._opened_at.pop(kind, None)
            self.rolled.add(self._current(kind))
        self.current[kind] = number

    def _is_due(self, kind: str, now: float) -> bool:
        return (
            self._files[kind].size >= self._roll_bytes
            or now - self._opened_at.get(kind, math.inf) >= self._roll_after_s
        )

    def publish(self, upto: int | None = None, *, now: float | None = 0.0) -> None:
        """Makes appended lines durable, closes files that are due (``roll``), and publishes everything, if there is
        anything new. ``upto``: the number of the last row. Raises OSError, like ``sync``.
        """
        grown = self.sync()
        self.log = self.log if upto is None else (0, upto)
        if self.roll(now) or grown or upto is not None:
            self.show()

    def show(self) -> None:
        """Publishes the durable lines to readers. Raises OSError: then the process must end."""
        if not self.published:
            self.disk.make_dir(self.state)
        durable = self._shown()
        self.disk.replace(self.state / DURABLE_NAME, msgspec.json.encode(durable))
        self.published = durable.files

    def _shown(self) -> Durable:
        return Durable(self.slot, dict(self.lengths), sorted(self.rolled), log=self.log)

    def close(self) -> None:
        """Closes the open files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _current(self, kind: str) -> str:
        return self.name(kind, self.current[kind])

    def _size(self, name: str) -> int:
        return self.disk.size(self.root / name) if self.disk.exists(self.root / name) else 0
