"""A disk that forgets what was not synced when the power goes. Implements ``photon.config.disk.Disk``.

- A process that dies (``kill``) loses nothing but its open files: the operating system has its writes.
- A power cut loses, of each file, what was written since its last sync: all of it, nothing, a suffix, or single
  sectors that come back as zeros. Names (created, renamed, removed files) live in their directory and last only from
  its ``sync_dir`` on; of the changes since then a prefix survives.
- ``crash_after(n)`` raises ``PowerOff`` in the n-th operation from now, halfway through a write; the caller then
  calls ``power_cut`` or ``kill``.

Every random choice comes from the Random that is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

SECTOR = 512

Copy = dict[str, dict[str, bytes]]  # directory -> name -> content


class PowerOff(BaseException):
    """The process ends here. Not an Exception: nothing may catch it and go on."""


class _Inode:
    __slots__ = ("data", "tail_from")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.tail_from = len(data)  # bytes before it are durable; files are only ever appended to


class SimulatedFile:
    """Implements ``photon.config.disk.AppendFile``."""

    def __init__(self, disk: SimulatedDisk, inode: _Inode, *, lies: bool) -> None:
        self._disk = disk
        self._lies = lies
        self._inode = inode
        self._life = disk.life
        self._closed = False

    @property
    def size(self) -> int:
        return len(self._inode.data)

    def write(self, *chunks: bytes) -> None:
        self._check()
        data = b"".join(chunks)
        if self._disk.operation():
            self._inode.data += data[: self._disk.random.randint(0, len(data))]
            raise PowerOff
        self._inode.data += data

    def sync(self) -> None:
        self._check()
        if self._disk.operation():
            raise PowerOff
        self._disk.syncs += 1
        if not self._lies:
            self._inode.tail_from = len(self._inode.data)

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed or self._life != self._disk.life:
            raise OSError("file is closed, or belongs to a process that is gone")


class SimulatedDisk:
    """One machine's file system."""

    def __init__(self, random: Random, *, lies_about: str | None = None) -> None:
        """Files whose names begin with ``lies_about`` are not synced by sync (for tests of the tests)."""
        self.random = random
        self._lies_about = lies_about
        self.life = 0
        self.operations = 0
        self.syncs = 0
        self._crash_at: int | None = None
        self._now: dict[str, dict[str, _Inode]] = {}
        self._durable: dict[str, dict[str, _Inode]] = {}
        self._changes: dict[str, list[tuple[str, _Inode | None]]] = {}

    # --- what the simulator does ------------------------------------------------------------------------------

    def crash_after(self, operations: int | None) -> None:
        self._crash_at = None if operations is None else self.operations + operations

    def kill(self) -> None:
        """The process is gone; its writes are not."""
        self.life += 1
        self._crash_at = None

    def power_cut(self) -> None:
        """The machine is off: only durable data is there when it comes back."""
        self.kill()
        random = self.random
        for directory, changes in self._changes.items():
            names = self._durable[directory]
            kept = random.choice((0, len(changes), random.randint(0, len(changes))))
            for name, inode in changes[:kept]:
                _change(names, name, inode)
            self._now[directory] = dict(names)
        self._changes.clear()
        inodes = {id(inode): inode for names in self._now.values() for inode in names.values()}
        for inode in inodes.values():
            self._forget_tail(inode)

    def _forget_tail(self, inode: _Inode) -> None:
        random = self.random
        tail = inode.data[inode.tail_from :]
        del inode.data[inode.tail_from :]
        fate = random.randrange(4)
        if fate == 1:
            inode.data += tail
        elif fate == 2:
            inode.data += tail[: random.randint(0, len(tail))]
        elif fate == 3:
            for start in range(0, len(tail), SECTOR):
                if random.random() < 0.5:
                    tail[start : start + SECTOR] = bytes(len(tail[start : start + SECTOR]))
            inode.data += tail
        inode.tail_from = len(inode.data)

    def operation(self) -> bool:
        """Counts a step, in which the power may fail."""
        self.operations += 1
        return self._crash_at is not None and self.operations >= self._crash_at

    def corrupt(self, path: Path, at: int) -> None:
        """Flips a bit on the disk."""
        self._find(path).data[at] ^= 1

    def copy(self) -> Copy:
        """All files as the processes see them now: a backup, a snapshot of the volume."""
        return {
            directory: {name: bytes(inode.data) for name, inode in names.items()}
            for directory, names in self._now.items()
        }

    def put_back(self, copy: Copy) -> None:
        """The disk now equals the copy, all of it durable."""
        self.kill()
        self._changes.clear()
        self._now = {
            directory: {name: _Inode(data) for name, data in names.items()} for directory, names in copy.items()
        }
        self._durable = {directory: dict(names) for directory, names in self._now.items()}

    # --- Disk -------------------------------------------------------------------------------------------------

    def append(self, path: Path) -> SimulatedFile:
        directory, name = _split(str(path))
        names = self._names(directory)
        inode = names.get(name)
        if inode is None:
            self._step()
            inode = _Inode()
            self._set(directory, name, inode)
        lies = self._lies_about is not None and name.startswith(self._lies_about)
        return SimulatedFile(self, inode, lies=lies)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        data = self._find(path).data
        return bytes(data[offset:] if length is None else data[offset : offset + length])

    def size(self, path: Path) -> int:
        return len(self._find(path).data)

    def exists(self, path: Path) -> bool:
        directory, name = _split(here := str(path))
        return name in self._now.get(directory, ()) or here in self._now

    def names(self, directory: Path) -> Sequence[str]:
        here = str(directory)
        below = f"{here.rstrip('/')}/"
        inside = {each[len(below) :] for each in self._now if each.startswith(below) and each != here}
        return sorted({name for name in inside if "/" not in name} | set(self._now.get(here, {})))

    def make_dir(self, directory: Path) -> None:
        self._step()
        if str(directory) in self._now:
            return
        for each in (directory, *directory.parents):
            if str(each) not in self._now:
                self._now[str(each)] = {}
                self._durable[str(each)] = {}

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        inode = self._find(old)
        directory, name = _split(str(new))
        old_directory, old_name = _split(str(old))
        if directory != old_directory:
            raise NotImplementedError("renaming over directories is not simulated")
        self._set(directory, f"{old_name}\0{name}", inode)

    def remove(self, path: Path) -> None:
        self._step()
        self._find(path)
        directory, name = _split(str(path))
        self._set(directory, name, None)

    def truncate(self, path: Path, size: int) -> None:
        self._step()
        inode = self._find(path)
        del inode.data[size:]
        inode.tail_from = len(inode.data)

    def sync_dir(self, directory: Path) -> None:
        self._step()
        self._durable[str(directory)] = dict(self._names(str(directory)))
        self._changes.pop(str(directory), None)

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        if self.exists(temporary):
            self.remove(temporary)
        file = self.append(temporary)
        file.write(data)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_dir(path.parent)

    def create(self, path: Path, data: bytes) -> bool:
        temporary = path.with_name(f".{path.name}.{self.random.getrandbits(32):08x}")
        file = self.append(temporary)
        file.write(data)
        file.sync()
        file.close()
        created = not self.exists(path)
        if created:
            self.rename(temporary, path)
        else:
            self.remove(temporary)
        self.sync_dir(path.parent)
        return created

    # --- inside -----------------------------------------------------------------------------------------------

    def _step(self) -> None:
        if self.operation():
            raise PowerOff

    def _names(self, directory: str) -> dict[str, _Inode]:
        try:
            return self._now[directory]
        except KeyError:
            raise FileNotFoundError(directory) from None

    def _find(self, path: Path) -> _Inode:
        directory, name = _split(str(path))
        try:
            return self._now[directory][name]
        except KeyError:
            raise FileNotFoundError(str(path)) from None

    def _set(self, directory: str, name: str, inode: _Inode | None) -> None:
        _change(self._now[directory], name, inode)
        self._changes.setdefault(directory, []).append((name, inode))


def _split(path: str) -> tuple[str, str]:
    """Like os.path.split, for a plain path: it takes most of a simulation's time."""
    head, slash, name = path.rpartition("/")
    return head or slash, name


def _change(names: dict[str, _Inode], name: str, inode: _Inode | None) -> None:
    """A name is created or removed; "old NUL new" renames, replacing the target."""
    if "\0" in name:
        old, name = name.split("\0")
        names.pop(old, None)
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode
