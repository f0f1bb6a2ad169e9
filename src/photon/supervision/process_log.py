"""The stderr logs of processes: appends to size-limited files, finds the last line, and follows new lines.

A process keeps its log open in append mode as long as it lives. So a log is renamed only between two runs of its
process; during a run it is copied and truncated. Lines written between the copy and the truncation are lost: at most
a few lines of a log that grows by megabytes. A pipe through the supervisor would avoid that, but lose a process's
output when the supervisor is killed, which is when it is most needed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import BinaryIO

import msgspec

LOG_BYTES = 16 << 20  # a larger log is rotated; one old log is kept
TAIL_BYTES = 64 << 10  # bytes at the end in which the last line is searched
SAID_CHARACTERS = 500
FOLLOW_BYTES = 64 << 10  # maximum bytes read at a time when following; more are skipped, with a note
OWN = "photon: "  # prefix of the line in which a command reports why it stopped


def old(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def open_log(path: Path, limit: int | None = None) -> BinaryIO:
    """Opens a log for a process that is about to start. Renames it first if it is above ``limit``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if limit is not None and is_above(path, limit):
        os.replace(path, old(path))
    return open(path, "ab")


def is_above(path: Path, limit: int) -> bool:
    """Returns True if a log has more than ``limit`` bytes."""
    return path.exists() and path.stat().st_size > limit


def cut_log(path: Path) -> None:
    """Copies and truncates a log while its process appends to it. Raises OSError."""
    shutil.copyfile(path, old(path))
    os.truncate(path, 0)


def last_said(path: Path, since: int = 0) -> str:
    """Returns the last line after byte ``since`` that says why the process stopped, otherwise the last line; empty if
    there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = since if since <= size else 0  # truncated meanwhile
            file.seek(max(start, size - TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    said = [line.removeprefix(OWN) for line in lines if line.startswith(OWN)] or lines
    return plain(said[-1])[:SAID_CHARACTERS] if said else ""


def plain(line: str) -> str:
    """Formats a structured log line as ``event key=value``; returns any other line unchanged."""
    if not line.startswith("{"):
        return line
    try:
        fields = msgspec.json.decode(line, type=dict[str, object])
    except msgspec.DecodeError:
        return line
    level, event = fields.pop("level", "info"), fields.pop("event", "")
    fields.pop("timestamp", None)
    words = [] if level == "info" else [f"{level}:"]
    words += [str(event), *(f"{key}={value}" for key, value in fields.items())]
    return " ".join(words)


class LogFollower:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Returns the complete lines written since the last call; none while the file cannot be read."""
        try:
            with open(self._path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._at:  # rotated or truncated
                    self._at, self._rest = 0, b""
                skipped = max(0, size - self._at - FOLLOW_BYTES)
                file.seek(self._at + skipped)
                data = file.read(FOLLOW_BYTES)
        except OSError:
            return []
        self._at += skipped + len(data)
        if skipped:
            data, self._rest = data.partition(b"\n")[2], b""
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest[-FOLLOW_BYTES:]
        lines = whole.decode(errors="replace").splitlines() if newline else []
        return [f"… {skipped} bytes skipped, see {self._path}", *lines] if skipped else lines
