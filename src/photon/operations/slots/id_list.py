"""The list of ids that a retirement gives up: JSON Lines with a versioned head, durable before any id is reopened.

Only these ids may reach readers of the slot's uncleared output twice. A repeated retirement adds new ids to the
existing list, so that none ever leaves it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry.api import DIGEST_BYTES, Kind
from photon.idregistry.core.scans import EntryPage
from photon.joiner.slot.place import DIRECTORY_OF

WHAT = "ids given up with a retired slot"


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    photon: str
    slot: str


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    digest: str
    event_time_ns: int
    kind: str  # its verdict: joined, filtered, unmatched or rejected
    token: str
    event_id: str | None = None  # None if no readable foreign log here has it
    event_id_raw_base64: str | None = None


@dataclass(slots=True, eq=False)
class ListUnusable(PhotonError):
    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; name another file with --ids"


def listed(page: EntryPage, event_ids: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, Listed]]:
    """(digest, line) for each entry of a page. ``event_ids``: digest -> id, if known."""
    names = {int(kind): directory for kind, directory in DIRECTORY_OF.items()}
    columns = (page.times.tolist(), page.kinds.tolist(), page.tokens.tolist())
    for at, (time, kind, token) in enumerate(zip(*columns, strict=True)):
        digest = page.digests[DIGEST_BYTES * at : DIGEST_BYTES * (at + 1)]
        name = names.get(kind, names[int(Kind.JOINED)])
        text, raw = _shown(event_ids.get(digest))
        yield digest, Listed(digest.hex(), time, name, f"{token:016x}", text, raw)


def _shown(event_id: bytes | None) -> tuple[str | None, str | None]:
    if event_id is None:
        return None, None
    try:
        return event_id.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(event_id).decode()


class IdList:
    """The list of one slot. ``open`` reads the existing list; ``add`` appends; ``sync`` makes it durable."""

    def __init__(self, disk: Disk, path: Path, slot: str) -> None:
        self.path = path
        self._disk = disk
        self._slot = slot
        # 16 bytes an id: the slot's owned and uncleared ids, from some seconds of work.
        self._known: set[bytes] = set()
        self._waiting: list[bytes] = []

    def __len__(self) -> int:
        return len(self._known)

    def open(self) -> None:
        """Reads the existing list; cuts a torn last line, which was never relied on. Raises ListUnusable, OSError."""
        if not self._disk.exists(self.path):
            return
        data = self._disk.read(self.path)
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].split(b"\n")[:-1]
        try:
            head = decoded(lines[0], Head) if lines else None
            ids = [msgspec.json.decode(line, type=Listed) for line in lines[1:]]
        except DECODE_ERRORS as bad:
            raise ListUnusable(self.path, f"is not a list of ids of a retired slot ({bad})") from None
        if head is not None and (head.photon, head.slot) != (WHAT, self._slot):
            raise ListUnusable(self.path, f"is a list of slot {head.slot}")
        if whole < len(data):
            self._disk.truncate(self.path, whole)
        self._known = {bytes.fromhex(each.digest) for each in ids}

    def lacks(self, page: EntryPage) -> list[int]:
        size = DIGEST_BYTES
        return [at for at in range(len(page)) if page.digests[size * at : size * (at + 1)] not in self._known]

    def add(self, entries: Sequence[tuple[bytes, Listed]]) -> None:
        for digest, each in entries:
            if digest not in self._known:
                self._known.add(digest)
                self._waiting.append(msgspec.json.encode(each) + b"\n")

    def sync(self) -> None:
        """Makes added lines and the file's name durable. Writes the head even if the list is empty."""
        self._disk.make_dir(self.path.parent)
        file = self._disk.append(self.path)
        try:
            if not file.size:
                file.write(msgspec.json.encode(Head(WHAT, self._slot)) + b"\n")
            if self._waiting:
                file.write(*self._waiting)
            file.sync()
        finally:
            file.close()
        self._waiting.clear()
        self._disk.sync_dir(self.path.parent)
