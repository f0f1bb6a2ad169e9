"""The history of a run: a JSON line for each action or observation, appended as it happens.

The first line has the file's type and version; times are seconds from the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from photon.lab.chaos.api import ChaosFailed

MAGIC = "photon-chaos"
VERSION = 1
LINE_MAX = 1 << 20


class History:
    """Appends lines to the history file. Use it as a context manager."""

    def __init__(self, path: Path, **about: Any) -> None:
        """Creates the file; ``about`` goes into its first line. Raises ChaosFailed if the file already exists."""
        try:
            self._file: BinaryIO = open(path, "xb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise ChaosFailed(f"{path}: cannot be created ({error.strerror}); name another directory") from None
        self.path = path
        self._write({"history": MAGIC, "version": VERSION, **about})

    def add(self, at_s: float, what: str, **more: Any) -> None:
        self._write({"at": round(at_s, 3), "what": what, **more})

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(orjson.dumps(line, option=orjson.OPT_NON_STR_KEYS) + b"\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Reads all lines, including the first; skips a torn last line. Raises ChaosFailed."""
    with open(path, "rb") as file:
        first = True
        while line := file.readline(LINE_MAX):
            if not line.endswith(b"\n"):
                return
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise ChaosFailed(f"{path}: is not a history file of photon chaos ({error})") from None
            if first and (entry.get("history"), entry.get("version")) != (MAGIC, VERSION):
                raise ChaosFailed(f"{path}: is not a history file of photon chaos, version {VERSION}")
            first = False
            yield entry
