"""Slots on a real disk, written like joiners and dispatchers write them, and disks that act between two looks."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from photon.config.disk import RealDisk
from photon.outputs import OutputPlace
from photon.outputs.output_places import EMBEDDED_STATE


def lines(first: int, count: int, width: int = 20) -> bytes:
    """Numbered lines of different lengths."""
    return b"".join(b'{"n":%d,"x":"%b"}\n' % (n, b"x" * (n * 7 % width)) for n in range(first, first + count))


class WrittenSlot:
    """Writes a slot's usual output."""

    def __init__(self, base: Path, slot: str = "s0", *, directory: str = "slots") -> None:
        self.place = OutputPlace(base / "out", base / "state")
        self.slot = slot
        self.state = self.place.state / directory / slot
        self.state.mkdir(parents=True, exist_ok=True)
        self.files: dict[str, int] = {}
        self.rolled: list[str] = []

    def name(self, number: int, kind: str = "joined") -> str:
        return f"{kind}/{self.slot}-{number:06d}.jsonl"

    def path(self, number: int, kind: str = "joined") -> Path:
        return self.place.output / self.name(number, kind)

    def append(self, number: int, data: bytes, kind: str = "joined", *, publish: bool = True) -> None:
        path = self.path(number, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        if publish:
            self.files[self.name(number, kind)] = path.stat().st_size
            self.publish()

    def roll(self, number: int, kind: str = "joined") -> None:
        self.rolled.append(self.name(number, kind))
        self.publish()

    def publish(self) -> None:
        durable = {"version": 1, "slot": self.slot, "files": self.files, "rolled": self.rolled}
        RealDisk().replace(self.state / "durable.json", msgspec.json.encode(durable))

    def compress(self, number: int, kind: str = "joined") -> None:
        path = self.path(number, kind)
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))

    def list(self, number: int, kind: str = "joined", *, compressed: bool = True) -> None:
        name = self.name(number, kind)
        file = f"{name}.gz" if compressed else name
        entry = {"version": 1, "file": file, "uncompressed_bytes": self.files[name], "bytes": 1, "crc32": 1}
        with (self.state / "manifest.jsonl").open("ab") as manifest:
            manifest.write(msgspec.json.encode(entry) + b"\n")

    def remove(self, number: int, kind: str = "joined") -> None:
        self.path(number, kind).unlink()

    def forget(self, number: int, kind: str = "joined") -> None:
        name = self.name(number, kind)
        del self.files[name]
        if name in self.rolled:
            self.rolled.remove(name)
        self.publish()

    def finish(self, number: int, kind: str = "joined", *, compressed: bool = True) -> None:
        """All steps of becoming final."""
        if compressed:
            self.compress(number, kind)
        self.list(number, kind, compressed=compressed)
        if compressed:
            self.remove(number, kind)
        self.forget(number, kind)

    def final(self, number: int, data: bytes = b"{}\n", *, compressed: bool = True) -> None:
        self.append(number, data)
        self.finish(number, compressed=compressed)

    def clear(self, lengths: dict[str, int], trouble: dict[str, int] | None = None) -> None:
        (self.state / "verifier").mkdir(exist_ok=True)
        cleared = {"version": 1, "files": lengths, "trouble": trouble or {}}
        RealDisk().replace(self.state / "verifier" / "cleared.json", msgspec.json.encode(cleared))


def written_output(base: Path) -> WrittenSlot:
    """A slot in an output, as made by ``photon join``."""
    slot = WrittenSlot(base)
    slot.place.output.mkdir()
    (slot.place.output / EMBEDDED_STATE).symlink_to(slot.place.state)
    return slot


class MeddlingDisk(RealDisk):
    """Does something after each reading of a file with this name; once, unless told otherwise."""

    def __init__(self, name: str, actions: Iterable[Callable[[], None]]) -> None:
        self._name = name
        self._actions = iter(actions)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset, length)
        if path.name == self._name:
            for action in self._actions:
                action()
                break
        return data
