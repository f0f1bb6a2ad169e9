"""``GET /explain.json?id=EVENT_ID``: the JSON of ``photon explain``, one at a time and within a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

import orjson

from photon.config.errors import PhotonError, UsageError
from photon.fleet.explain.question import ID_BYTES_MAX, Question, question_of
from photon.fleet.explain.story import Story
from photon.status.http import Answer

PATH = "/explain.json"
ASK_S = 9.0
"""For asking everybody; what has not answered by then is named as missing."""
LIMIT_S = 10.0
"""And then the answer is that there is none."""
QUERY_BYTES_MAX = 4 * ID_BYTES_MAX
"""Of an id with every byte escaped, and some more."""
FIELDS_MAX = 4


class Explained:
    def __init__(self, ask: Callable[[Question], Awaitable[Story]], limit_s: float = LIMIT_S) -> None:
        self._ask = ask
        self._limit_s = limit_s
        self._busy = False

    async def answer(self, query: str) -> Answer:
        """``query``: what follows the question mark."""
        try:
            question = _question(query)
        except UsageError as error:
            return _failed(str(error), 400)
        if self._busy:
            return _failed("another event is being looked for; ask again in a moment", 503)
        self._busy = True
        try:
            async with asyncio.timeout(self._limit_s):
                story = await self._ask(question)
        except TimeoutError:
            return _failed(f"not found out within {self._limit_s:g} s; photon explain has a --timeout", 504)
        except PhotonError as error:
            return _failed(str(error), 500)
        finally:
            self._busy = False
        return Answer(orjson.dumps(story.as_json()), "application/json")


def _question(query: str) -> Question:
    """Raises UsageError."""
    if len(query) > QUERY_BYTES_MAX:
        raise UsageError(f"the question is too long: an event id has at most {ID_BYTES_MAX} bytes")
    try:
        fields = parse_qs(query, errors="surrogateescape", max_num_fields=FIELDS_MAX)
    except ValueError:
        fields = {}
    if len(fields.get("id", ())) != 1:
        raise UsageError("name one event: /explain.json?id=EVENT_ID")
    return question_of(fields["id"][0], raw=fields.get("base64") == ["1"])


def _failed(why: str, status: int) -> Answer:
    return Answer(orjson.dumps({"error": why}), "application/json", status)
