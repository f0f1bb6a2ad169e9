"""Reads an output's records in a program: batches of lines, each with the cursor after it.

Exactly-once depends on the caller's last step: write a batch's results and its cursor in one transaction,
or store the cursor after idempotent writes of the results. A program that restarts at a stored cursor gets exactly
the records after it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from photon.adapters.formats.json_values import parse_line
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.fleet.access import output_here, pipeline_named
from photon.objects.disk import UrlDisk
from photon.objects.paths import placed
from photon.outputs import KINDS, Cursor, OutputPlace, Reader
from photon.outputs.mirrored import place_at
from photon.outputs.output_places import NotBegun

POLL_S = 0.2
"""Seconds between checks for new lines while there is nothing to read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Complete lines of one output file: at most one MiB, unless a single line is longer."""

    kind: str
    slot: str
    data: bytes
    """JSON Lines, as ``docs/output.md`` describes them."""
    cursor: bytes
    """The cursor after this batch: one line of JSON."""

    def lines(self) -> list[bytes]:
        """Returns the lines without newlines."""
        return self.data.splitlines()

    def records(self) -> list[dict[str, Any]]:
        """Parses the lines. Numbers beyond a float's range, and values more than 200 levels deep, stay JSON text.
        Raises ValueError if an adapter has written invalid JSON."""
        return [parse_line(line) for line in self.lines()]


class Output:
    """The published output of a pipeline. Reads only its durable part, which no crash can take back. Not
    thread-safe."""

    def __init__(self, place: OutputPlace, *, disk: Disk | None = None) -> None:
        self._place = place
        self._disk = disk or UrlDisk()

    @property
    def place(self) -> OutputPlace:
        """The directories of the output."""
        return self._place

    @classmethod
    def of_join(cls, directory: str | Path) -> Output:
        """Opens the output directory of ``photon join`` or of a ``Join``, or a URL to which ``photon sink objects``
        has copied an output. Raises UsageError, OSError."""
        return cls(place_at(placed(Path(), directory)))

    @classmethod
    def of_deployment(cls, config: str | Path, datacentre: str | None = None) -> Output:
        """Opens the output of one datacentre (``None`` means the only one) of the deployment file ``config``. Raises
        ConfigError, UsageError."""
        return cls(output_place(Path(config), datacentre))

    def end(self) -> bytes:
        """Returns the cursor after all records published so far. Raises PublishedDamaged, OSError."""
        return self._place.end(self._disk).encode()

    def checked_kinds(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """Returns the kinds as a tuple. Raises UsageError for an unknown one."""
        wanted = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        if unknown := set(wanted) - set(KINDS):
            raise UsageError(f"no such kind of record: {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
        return wanted

    def cursor_of(self, cursor: bytes | str | None) -> Cursor:
        """Decodes a cursor: ``None`` is the beginning, "end" is after all records so far. Raises CursorUnreadable."""
        if cursor == "end":
            cursor = self.end()
        if cursor is None:
            return Cursor()
        return Cursor.decode(cursor.encode() if isinstance(cursor, str) else cursor, "cursor")

    def reader(self, kinds: Sequence[str], at: Cursor, *, cleared_only: bool = False) -> Reader:
        """Returns a reader that starts at ``at``."""
        return Reader(self._disk, self._place, kinds, cursor=at, cleared_only=cleared_only)

    def batches(
        self,
        *,
        kinds: Sequence[str] = ("joined",),
        cursor: bytes | None = None,
        follow: bool = False,
        cleared_only: bool = False,
        lines: int | None = None,
        until: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Iterator[Batch]:
        """Yields the records after ``cursor`` (``None`` means from the beginning), in batches; with ``follow``, also
        new ones until ``until()`` is true, which is called between batches and every 0.2 s.

        ``cleared_only``: only records that stay valid even if a slot is retired; slightly delayed. ``lines``:
        most lines in a batch. Raises UsageError, CursorUnreadable, CursorLost, OutputMissing, PublishedDamaged,
        OSError.
        """
        at = self.cursor_of(cursor)
        reader = self.reader(self.checked_kinds(kinds), at, cleared_only=cleared_only)
        while True:
            for block in reader.read():
                at = at.moved(block.place, block.end(0), block.output)  # skips the rest of a damaged range
                for size, data in _pieces(block.data, lines):
                    at = at.moved(block.place, block.end(size), block.output)
                    yield Batch(block.place.kind, block.place.slot, data, at.encode())
                    if until():
                        return
            if not follow or until():
                return
            sleep(POLL_S)


def _pieces(data: bytes, lines: int | None) -> Iterator[tuple[int, bytes]]:
    """Yields (end, piece) for each piece of ``lines`` lines."""
    if lines is None:
        if data:
            yield len(data), data
        return
    end, all_lines = 0, data.splitlines(keepends=True)
    for first in range(0, len(all_lines), lines):
        piece = b"".join(all_lines[first : first + lines])
        end += len(piece)
        yield end, piece


def output_place(config: Path, datacentre: str | None) -> OutputPlace:
    """Returns the output of ``datacentre`` (None means the only one). Raises ConfigError, UsageError, NotBegun."""
    settings = load(config, environment=os.environ)
    name = pipeline_named(settings, datacentre)[0]
    place = output_here(settings, config.parent, name)
    if not place.state.is_dir() and not place.states(UrlDisk()):
        raise NotBegun(f"{place.state}: no such directory; datacentre {name} has not begun here", place)
    return place
