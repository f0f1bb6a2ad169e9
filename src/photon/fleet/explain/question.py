"""The event that a person asks about, by its id or its place in a log, and the time limit of the search. Pure."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from photon.config.errors import UsageError
from photon.eventid import EventIdError, time_ns

ID_BYTES_MAX = 4096  # no id of an event is longer
_PLACE = re.compile(r"(?s)(.+):(\d{1,18})")
# The id of an event without one of its own: identity of its log, and offset.
_OWN_ID = re.compile(r"[0-9a-f]{32}:(\d{1,18})")
CHUNK_BYTES = 4 << 20  # read and searched at once


@dataclass(frozen=True, slots=True)
class Place:
    file: str  # relative to the log directory
    offset: int  # uncompressed bytes


@dataclass(frozen=True, slots=True)
class Question:
    """An event. ``place``: the same text read as LOG:OFFSET."""

    event_id: bytes
    place: Place | None = None

    @property
    def shown(self) -> str:
        return shown(self.event_id)

    @property
    def time_ns(self) -> int | None:
        """The event time contained in a canonical id."""
        try:
            return time_ns(self.event_id.decode())
        except (EventIdError, UnicodeDecodeError):
            return None

    def needles(self) -> list[bytes]:
        """Byte strings of which an output line of this event holds at least one."""
        from photon.adapters.envelope import member  # a page that only parses a question needs no adapters

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
    """Parses an event id, or LOG:OFFSET; with ``raw`` the base64 of an id that is not UTF-8. Raises UsageError."""
    event_id = text.encode("utf-8", "surrogateescape")
    if raw:
        try:
            event_id = b64decode(event_id, validate=True)
        except ValueError:
            given = shown(event_id)[:80]
            raise UsageError(f"{given}: not base64; give the event_id_raw_base64 of a record") from None
    if not event_id or len(event_id) > ID_BYTES_MAX or b"\n" in event_id:
        raise UsageError(
            f"an event id has 1 to {ID_BYTES_MAX} bytes on one line; copy it from event_id of a record, "
            "or name a record as LOG:OFFSET"
        )
    question = Question(event_id)
    found = None if raw or question.time_ns is not None else _PLACE.fullmatch(text)
    if found is None or shown(event_id) != text:  # logs with names that are not UTF-8 are not read
        return question
    return Question(event_id, Place(found[1], int(found[2])))


def own_offset(event_id: bytes) -> int | None:
    """The log offset of an event without an id of its own. `None` if the id is not of this kind."""
    found = _OWN_ID.fullmatch(event_id.decode("ascii", "replace"))
    return None if found is None else int(found[1])


def shown(value: bytes) -> str:
    """Bytes as text, with escapes for bytes that are not UTF-8."""
    return value.decode("utf-8", "backslashreplace")


class Budget:
    """The time limit shared by the searches of one question."""

    def __init__(
        self,
        seconds: float,
        monotonic: Callable[[], float],
        progress: Callable[[str, int], None] = lambda what, total: None,
    ) -> None:
        """``progress(file, bytes searched so far)`` is called before each chunk."""
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
        """Seconds left; not below 0."""
        return max(self._until - self._monotonic(), 0.0)

    @property
    def why(self) -> str:
        return f"not searched to its end within {self._seconds:g} s"

    def spend(self, what: str, count: int) -> None:
        self._total += count
        self._progress(what, self._total)
