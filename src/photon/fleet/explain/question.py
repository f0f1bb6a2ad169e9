"""The event that a user asks about, given by its id or its place in a log, and the search's time limit. Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from photon.config.errors import UsageError
from photon.eventid import EventIdError, time_ns

ID_BYTES_MAX = 4096  # maximum length of an event id
_PLACE = re.compile(r"(?s)(.+):(\d{1,18})")
# Id of an event that has none of its own: identity of its log, and offset.
_OWN_ID = re.compile(r"[0-9a-f]{32}:(\d{1,18})")
CHUNK_BYTES = 4 << 20  # bytes read and searched at a time


@dataclass(frozen=True, slots=True)
class Place:
    file: str  # path relative to the log directory
    offset: int  # uncompressed bytes


@dataclass(frozen=True, slots=True)
class Question:
    """The event to search for. ``place``: the same text parsed as LOG:OFFSET."""

    event_id: bytes
    place: Place | None = None

    @property
    def shown(self) -> str:
        return shown(self.event_id)

    @property
    def time_ns(self) -> int | None:
        """The event time contained in a canonical id; `None` for other ids."""
        try:
            return time_ns(self.event_id.decode())
        except (EventIdError, UnicodeDecodeError):
            return None

    def needles(self) -> list[bytes]:
        """Returns byte strings; an output line of this event contains at least one of them."""
        from photon.adapters.envelope import member  # a page that only parses questions does not load adapters

        found = [member(b"event_id", self.event_id)]
        if self.place is not None:
            name = orjson.dumps(self.place.file)
            found.append(b'"source":{"file":%b,"offset":%d}' % (name, self.place.offset))
        return found

    def means(self, event_id: bytes | None, file: str | None, offset: int | None) -> bool:
        if event_id is not None and event_id == self.event_id:
            return True
        return self.place is not None and (file, offset) == (self.place.file, self.place.offset)


def question_of(text: str, *, raw: bool = False) -> Question:
    """Parses an event id, or LOG:OFFSET. With ``raw``, parses the base64 of an id that is not UTF-8. Raises
    UsageError."""
    event_id = text.encode("utf-8", "surrogateescape")
    if raw:
        try:
            event_id = b64decode(event_id, validate=True)
        except ValueError:
            given = shown(event_id)[:80]
            raise UsageError(f"{given}: not base64; give the event_id_raw_base64 of a record") from None
    if not event_id or len(event_id) > ID_BYTES_MAX or b"\n" in event_id:
        raise UsageError(
            f"an event id has 1 to {ID_BYTES_MAX} bytes on one line; copy it from a record's event_id, "
            "or give LOG:OFFSET"
        )
    question = Question(event_id)
    found = None if raw or question.time_ns is not None else _PLACE.fullmatch(text)
    if found is None or shown(event_id) != text:  # Photon reads no logs whose names are not UTF-8
        return question
    return Question(event_id, Place(found[1], int(found[2])))


def own_offset(event_id: bytes) -> int | None:
    """Returns the log offset in the id of an event that has no id of its own; `None` for other ids."""
    found = _OWN_ID.fullmatch(event_id.decode("ascii", "replace"))
    return None if found is None else int(found[1])


def shown(value: bytes) -> str:
    """Returns bytes as text; bytes that are not UTF-8 are escaped."""
    return value.decode("utf-8", "backslashreplace")


class Budget:
    """The time limit shared by the searches of one question."""

    def __init__(
        self,
        seconds: float,
        monotonic: Callable[[], float],
        progress: Callable[[str, int], None] = lambda what, total: None,
    ) -> None:
        """``progress``: called with the file and the total bytes searched before each chunk."""
        self._until = monotonic() + seconds
        self._monotonic = monotonic
        self._progress = progress
        self._seconds = seconds
        self._total = 0

    @property
    def over(self) -> bool:
        return self._monotonic() >= self._until

    @property
    def left_s(self) -> float:
        """Seconds left; never negative."""
        return max(self._until - self._monotonic(), 0.0)

    @property
    def why(self) -> str:
        return f"not searched completely within {self._seconds:g} s"

    def spend(self, what: str, count: int) -> None:
        self._total += count
        self._progress(what, self._total)
