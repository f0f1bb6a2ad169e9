"""``manifest.jsonl``: one line for each file of a slot that never changes again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.versioned_file import decoded
from photon.outputs.log.format import MANIFEST_NAME, ManifestEntry


class Manifest:
    """The manifest, for the single process that writes it."""

    def __init__(self, disk: Disk, state: Path) -> None:
        self._disk, self._path = disk, state / MANIFEST_NAME
        self.entries: dict[str, ManifestEntry] = {}  # by plain name

    def load(self, damaged: Callable[[Path, str], Exception]) -> None:
        """Reads the manifest. Cuts off a torn last line, on which nothing relies. Raises ``damaged``, OSError."""
        if not self._disk.exists(self._path):
            return
        # The data just read may be only in the cache, but files are removed, or not opened, because of it.
        self._disk.rewrite(self._path, 0)
        self._disk.sync_dir(self._path.parent)
        data = self._disk.read(self._path)
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            try:
                entry = decoded(line, ManifestEntry)
            except DECODE_ERRORS as bad:
                raise damaged(self._path, f"line {number} is unreadable ({bad})") from bad
            self.entries[entry.name] = entry
        if whole < len(data):
            self._disk.truncate(self._path, whole)

    def add(self, *entries: ManifestEntry) -> None:
        """Durably adds files; existing entries stay. Raises OSError."""
        new = [entry for entry in entries if entry.name not in self.entries]
        if not new:
            return
        created = not self._disk.exists(self._path)
        with closing(self._disk.append(self._path)) as file:
            file.write(*(msgspec.json.encode(entry) + b"\n" for entry in new))
            file.sync()
        if created:
            self._disk.sync_dir(self._path.parent)
        self.entries.update((entry.name, entry) for entry in new)
