"""A joined day of a real deployment, its final files as lines: defects are planted in them, then written back."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SITES = ("east", "west")
BLOCKS = 8  # hours of the day that are joined together, and are in one output file of each kind and datacentre
HOURS = 24 // BLOCKS
LOGS = 6  # the block whose raw logs are deleted


@dataclass(eq=False)
class Line:
    """A line of an output file, before and after."""

    site: str
    file: str  # KIND/SLOT-NUMBER.jsonl
    data: bytes
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def event(self) -> str:
        return str(self.said.get("event_id", ""))

    @property
    def hour(self) -> int:
        return int(self.said["event_time_ns"]) // 3_600_000_000_000 % 24

    @property
    def log(self) -> str:
        return str(self.said["source"]["file"])

    @property
    def log_place(self) -> str:
        return f"{self.log}:{self.said['source']['offset']}"

    def replace(self, old: bytes, new: bytes) -> None:
        assert old in self.data, (old, self.data)
        self.data = self.data.replace(old, new, 1)

    def change(self, **members: Any) -> None:
        """Changes members of the record; others keep their text. ``None`` removes a member."""
        said = {name: value for name, value in (self.said | members).items() if value is not None}
        self.data = text(said)


def text(said: dict[str, Any]) -> bytes:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Found:
    """An expected finding of a defect. ``places``: all of them are in its row: a line's place in the output, or
    LOG:OFFSET."""

    kind: str
    event: str
    places: Sequence[Line | str] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """A night's complete report on one defect. ``cause``: kind, file or log, and events; ``None`` if nothing stands
    for it."""

    found: Sequence[Found] = ()
    cause: tuple[str, str, int] | None = None


class Day:
    """``files``: (datacentre, name) -> lines."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[tuple[str, str], list[Line]] = {}
        for site in SITES:
            for path in sorted((root / site / "output").glob("*/*.jsonl.gz")):
                name = f"{path.parent.name}/{path.name.removesuffix('.gz')}"
                rows = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
                self.files[site, name] = [Line(site, name, row, json.loads(row)) for row in rows]
        self._names = {
            (site, kind, block): max(
                (name for where, name in self.files if where == site and name.startswith(kind + "/")),
                key=lambda name: sum(line.hour // HOURS == block for line in self.files[site, name]),
            )
            for site in SITES for kind in ("joined", "unmatched") for block in range(BLOCKS)
        }  # fmt: skip
        self._before = {at: [line.data for line in lines] for at, lines in self.files.items()}
        self._taken = Counter[str]()

    # -- lines -----------------------------------------------------------------------------------------------------
    def name(self, site: str, kind: str, block: int) -> str:
        return self._names[site, kind, block]

    def of(self, site: str, kind: str, block: int) -> list[Line]:
        return self.files[site, self.name(site, kind, block)]

    def take(self, kind: str = "joined", site: str = "") -> Line:
        """A line that no other defect has, of the first half of the day, another file each time."""
        turn = self._taken[kind + site]
        self._taken[kind + site] += 1
        sites = (site,) if site else SITES
        name, block = sites[turn % len(sites)], turn // len(sites) % (BLOCKS // 2)
        return self.claim(next(line for line in self.of(name, kind, block)[1:] if self.is_free(line)))

    def claim(self, line: Line) -> Line:
        self._taken[line.event] += 1
        return line

    def is_free(self, line: Line) -> bool:
        """True if no other defect has it, and its text is unchanged when parsed and written (0.50 is not)."""
        return bool(line.said) and text(line.said) == line.data and not self._taken[line.event]

    def all(self, kind: str) -> list[Line]:
        return [line for (_, name), lines in self.files.items() if name.startswith(kind + "/") for line in lines]

    def remove(self, line: Line) -> None:
        self.files[line.site, line.file].remove(line)

    def insert(self, after: Line, data: bytes, at: tuple[str, str] | None = None) -> Line:
        """Inserts another line after this one, or at the end of another file."""
        site, name = at or (after.site, after.file)
        lines, line = self.files[site, name], Line(site, name, data)
        lines.insert(len(lines) if at else lines.index(after) + 1, line)
        return line

    def place(self, line: Line) -> str:
        lines = self.files[line.site, line.file]
        return f"{line.file}:{sum(len(each.data) for each in lines[: lines.index(line)])}"

    # -- files -----------------------------------------------------------------------------------------------------
    def path(self, site: str, name: str) -> Path:
        return self.root / site / "output" / f"{name}.gz"

    def manifest(self, site: str) -> Path:
        return self.root / site / "state" / "slots" / f"{site}-1" / "manifest.jsonl"

    def write(self) -> None:
        """Writes changed files, and their lengths in the manifest, so that only the lines reveal the change."""
        for (site, name), lines in self.files.items():
            if [line.data for line in lines] == self._before[site, name]:
                continue
            data = b"".join(line.data for line in lines)
            packed = gzip.compress(data)
            self.path(site, name).write_bytes(packed)
            entries = [json.loads(entry) for entry in self.manifest(site).read_bytes().splitlines()]
            for entry in entries:
                if entry["file"] == f"{name}.gz":
                    entry |= {"uncompressed_bytes": len(data), "bytes": len(packed), "crc32": zlib.crc32(data)}
                    entry |= {"records": len(lines)}
            self.manifest(site).write_bytes(b"".join(text(entry) for entry in entries))

    def raw(self, site: str, side: str, log: str) -> Path:
        return self.root / site / side / log

    def same_click(self, *places: str) -> bool:
        """True if a datacentre's log has equal lines at these places."""

        def line(place: str) -> bytes:
            log, _, offset = place.rpartition(":")
            path = self.raw("west", "clicks", log)
            if not path.is_file():
                return place.encode()
            with path.open("rb") as file:
                file.seek(int(offset))
                return file.readline()

        return len(set(map(line, places))) == 1

    def change_raw(self, site: str, side: str, place: str, old: bytes, new: bytes) -> None:
        """In place: the file remains the same one."""
        log, _, offset = place.rpartition(":")
        assert len(old) == len(new)
        with self.raw(site, side, log).open("r+b") as file:
            file.seek(int(offset))
            line = file.readline()
            assert old in line, line
            file.seek(int(offset))
            file.write(line.replace(old, new, 1))
