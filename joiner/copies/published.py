"""What readers may read of a copy: what its slot has published, as far as the copy has it.

In the form of every slot (``photon.outputs.published``): ``durable.json`` for files that grow or are not published
whole yet, ``manifest.jsonl`` for the others, so that neither grows with each extension. The files stay plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from photon.config.disk import Disk
from photon.idregistry.witness import Witness
from photon.joiner.slot.place import DIRECTORY_OF, KINDS
from photon.joiner.slot.witness import shown
from photon.outputs.published import (
    DURABLE_NAME,
    FINAL_SUFFIX,
    MANIFEST_NAME,
    MANIFEST_VERSION,
    PLAIN_SUFFIX,
    durable_bytes,
)

_LOG_OF = {DIRECTORY_OF[kind]: at for at, kind in enumerate(KINDS)}


class _Entry(msgspec.Struct, frozen=True):
    version: int
    file: str
    uncompressed_bytes: int


class KeptPublished:
    """Of one copy. Raises OSError."""

    def __init__(self, disk: Disk, directory: Path, slot: str) -> None:
        self._disk = disk
        self._durable = directory / DURABLE_NAME
        self._manifest = directory / MANIFEST_NAME
        self._slot = slot
        self._listed: set[str] = set()
        self._last = b""

    def load(self) -> None:
        """Which files are listed already. A last line that is torn was never relied on, and is cut."""
        if not self._disk.exists(self._manifest):
            return
        data = self._disk.read(self._manifest)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._disk.truncate(self._manifest, whole)
        self._disk.rewrite(self._manifest, 0)  # what was read may stand in the cache only
        self._disk.sync_dir(self._manifest.parent)
        entries = [msgspec.json.decode(line, type=_Entry) for line in data[:whole].split(b"\n")[:-1]]
        self._listed = {each.file.removesuffix(FINAL_SUFFIX) + PLAIN_SUFFIX for each in entries}

    def show(self, lengths: Mapping[str, int], ends: Witness, witness: Witness) -> None:
        """``lengths``: plain name -> bytes that are kept; ``witness``: what the slot has published."""
        growing: dict[str, int] = {}
        whole: dict[str, int] = {}
        for name, length in lengths.items():
            if name in self._listed:
                continue
            log, number = _log_of(name)
            growing[name] = shown(witness, log, number, length)
            if number < ends[log].number and number < witness[log].number:
                whole[name] = length
        self._list(whole)
        durable = durable_bytes(self._slot, {name: at for name, at in growing.items() if name not in whole}, ())
        if durable != self._last:
            self._disk.replace(self._durable, durable)
            self._last = durable

    def _list(self, whole: Mapping[str, int]) -> None:
        if not whole:
            return
        lines = [
            msgspec.json.encode(_Entry(MANIFEST_VERSION, name.removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX, length))
            for name, length in whole.items()
        ]
        file = self._disk.append(self._manifest)
        try:
            file.write(*(line + b"\n" for line in lines))
            file.sync()
        finally:
            file.close()
        self._disk.sync_dir(self._manifest.parent)
        self._listed.update(whole)


def _log_of(name: str) -> tuple[int, int]:
    """Place in KINDS and file number."""
    directory, _, file = name.partition("/")
    return _LOG_OF[directory], int(file.removesuffix(PLAIN_SUFFIX).rpartition("-")[2])
