"""Writes a published log: lines are appended and synced, and then their length is published.

A slot's files are ``<output>/<kind>/<slot>-<6 digits>.jsonl``; ``durable.json`` in its state directory says how far
each may be read. What holds, whenever the process is killed or the power is cut:

1. published <= durable <= appended: ``publish`` syncs files and their names before it replaces ``durable.json``.
2. A published prefix never changes, and its length never falls.
3. A file is whole and synced before its successor exists (``append``).
4. A start cuts only what was not published and will be written again (``recover``). What else stands there belongs
   to a state that was lost, and readers may have seen it: it stays, and the log goes on in another file.
5. If ``durable.json`` is missing, or older than the state of who writes, the start is refused (``expect``).

``tests/simulation/log`` attacks each of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from photon.config.disk import AppendFile, Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import read_versioned
from photon.outputs.formats import Durable
from photon.outputs.published import DURABLE_NAME, PublishedDamaged, durable_bytes, name_of, number_of

ROLL_BYTES = 128 << 20
LOOK_BYTES = 1 << 16


class NotOfThisState(UsageError):
    """Published files and the state of who publishes them do not belong together."""

    exit_code = 3


class LogWriter:
    """The files of one slot. One thread at a time; the caller sees to it that no other process writes them."""

    def __init__(
        self, disk: Disk, output: Path, state: Path, slot: str, kinds: Sequence[str], *, roll_bytes: int = ROLL_BYTES
    ) -> None:
        """Reads ``durable.json``; no file changes. Raises PublishedDamaged, OSError."""
        self._disk, self._output, self._state, self._slot = disk, output, state, slot
        self._kinds, self._roll_bytes = tuple(kinds), roll_bytes
        self._name = re.compile(re.escape(slot) + r"-([0-9]{1,18})\.jsonl")
        if disk.exists(state / DURABLE_NAME):
            # It may stand in the cache only, and the sender forgets its rows because of it.
            disk.rewrite(state / DURABLE_NAME, 0)
            disk.sync_dir(state)
        durable = read_versioned(disk, state / DURABLE_NAME, Durable, PublishedDamaged)
        self.published: dict[str, int] = {} if durable is None else durable.files
        """Name of a file -> how many of its bytes readers are shown."""
        self.upto = -1 if durable is None or durable.log is None else durable.log[1]
        """The number of the newest row that is published, for those who number their rows."""
        self._numbers = {kind: self._newest_published(kind) or 1 for kind in self._kinds}
        self._files: dict[str, AppendFile] = {}
        self._unsynced: set[str] = set()  # kinds whose open file has bytes, or a name, that are not durable
        self._durable: dict[str, int] = {}  # name of a file -> its durable bytes, if they are more than are published

    def _newest_published(self, kind: str) -> int:
        """Returns the number of the newest file of a kind; 0 if there is none."""
        return max((number_of(name) for name in self.published if name.startswith(f"{kind}/")), default=0)

    def path(self, kind: str) -> Path:
        """Returns the path of the file that is written to."""
        return self._output / self._named(kind, self._numbers[kind])

    def end(self, kind: str) -> int:
        """Returns how many bytes that file has."""
        return self._files[kind].size if kind in self._files else self._size(kind, self._numbers[kind])

    def expect(self, upto: int, where: str) -> None:
        """Call it before ``recover``. ``upto``: the number of the last row that ``where`` knows to be published.

        Raises NotOfThisState if readers are shown less."""
        if self.upto >= upto:
            return
        kept = f"ends with record {self.upto}" if self.upto >= 0 else f"has nothing ({DURABLE_NAME})"
        raise NotOfThisState(
            f"{self._output}: {self._slot} {kept} here, but {where} has published it up to record {upto}: put back "
            f"all of the newest {self._output}, with {self._state / DURABLE_NAME}, or write into another directory"
        )

    # -- at start ----------------------------------------------------------------------------------------------
    def recover(self, kind: str, again: Collection[bytes] | None = None) -> bool:
        """Cuts what is not published. ``again``: the lines that will be written again; ``None`` means all that are
        there.

        Returns whether the log goes on where it ended; if not, it goes on in a new file, and what stands there is
        shown to its last whole line. Raises PublishedDamaged where published bytes are missing, OSError.
        """
        number = self._numbers[kind]
        length = self.published.get(self._named(kind, number), 0)
        if (size := self._size(kind, number)) < length:
            raise PublishedDamaged(self.path(kind), f"has {size} bytes, but {length} were published")
        behind = {number: length} | {each: 0 for each in self._on_disk(kind) if each > number}
        if again is not None and not self._is_again(kind, behind, again):
            self._keep(kind)
            return False
        for each, end in behind.items():
            if self._size(kind, each) > end:
                self._disk.truncate(self._output / self._named(kind, each), end)
        return True

    def skip(self, kind: str) -> None:
        """Goes on in a new file: the one that is there is damaged."""
        self._numbers[kind] = max([self._numbers[kind], *self._on_disk(kind)]) + 1

    def forget_gone(self) -> list[str]:
        """Returns the published files that somebody removed: readers are not told of them any more. The newest of a
        kind stays, as no number may be used again."""
        newest = {self._named(kind, self._newest_published(kind)) for kind in self._kinds}
        gone = [name for name in self.published if name not in newest and not self._disk.exists(self._output / name)]
        for name in gone:
            del self.published[name]
        return gone

    def _is_again(self, kind: str, behind: Mapping[int, int], again: Collection[bytes]) -> bool:
        paths = {self._output / self._named(kind, n): at for n, at in behind.items() if self._size(kind, n) > at}
        data = [self._disk.read(path, at) for path, at in paths.items()]
        # After a power cut there may be holes, and a torn end.
        lines = (line for each in data for line in each.split(b"\n")[:-1] if b"\0" not in line)
        return sum(map(len, data)) <= sum(map(len, again)) and all(line + b"\n" in again for line in lines)

    def _keep(self, kind: str) -> None:
        for number in self._on_disk(kind):
            name = self._named(kind, number)
            whole = self._whole(self._output / name)
            if whole > self.published.get(name, 0):
                self._disk.rewrite(self._output / name, self.published.get(name, 0))  # it may stand in the cache only
                self.published[name] = whole
        self._disk.sync_dir(self._output / kind)
        self.skip(kind)

    def _whole(self, path: Path) -> int:
        """Bytes of a file up to the end of its last whole line."""
        at = self._disk.size(path)
        while at:
            begin = max(0, at - LOOK_BYTES)
            if end := self._disk.read(path, begin, at - begin).rfind(b"\n") + 1:
                return begin + end
            at = begin
        return 0

    def _on_disk(self, kind: str) -> Iterator[int]:
        """Numbers of the files that hold anything."""
        found = (self._name.fullmatch(name) for name in self._disk.names(self._output / kind))
        return (n for n in (int(each[1]) for each in found if each is not None) if self._size(kind, n))

    # -- writing -----------------------------------------------------------------------------------------------
    def append(self, kind: str, lines: bytes) -> None:
        """Whole lines. Raises OSError: then the process must end."""
        if kind in self._files and self._files[kind].size >= self._roll_bytes:
            self.sync()
            self._files.pop(kind).close()
            self._numbers[kind] += 1
        if kind not in self._files:
            self._disk.make_dir(self._output / kind)
            self._files[kind] = self._disk.append(self.path(kind))
        self._files[kind].write(lines)
        self._unsynced.add(kind)

    def sync(self) -> None:
        """Makes durable what was appended, and shows it to nobody. Raises OSError: then the process must end."""
        for kind in sorted(self._unsynced):
            file, name = self._files[kind], self._named(kind, self._numbers[kind])
            file.sync()
            if name not in self.published and name not in self._durable:
                self._disk.sync_dir(self._output / kind)
            self._durable[name] = file.size
        self._unsynced.clear()

    def publish(self, upto: int | None = None) -> None:
        """Shows readers all that was appended. ``upto``: the number of its last row. Raises OSError, as ``sync``."""
        self.sync()
        self.upto = self.upto if upto is None else upto
        self.published.update(self._durable)
        self._durable.clear()
        current = {self._named(kind, number) for kind, number in self._numbers.items()}
        self._disk.make_dir(self._state)
        durable = durable_bytes(self._slot, self.published, self.published.keys() - current, self.upto)
        self._disk.replace(self._state / DURABLE_NAME, durable)

    def close(self) -> None:
        """Closes the open files."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _named(self, kind: str, number: int) -> str:
        return name_of(kind, self._slot, number)

    def _size(self, kind: str, number: int) -> int:
        path = self._output / self._named(kind, number)
        return self._disk.size(path) if self._disk.exists(path) else 0
