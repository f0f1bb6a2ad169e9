"""The JSON of ``photon explain`` at ``/explain.json?id=EVENT_ID``: one question at a time, with a time limit.

Loaded at the first question: a search needs nearly all of Photon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs

import orjson

from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Settings
from photon.config.tls import Tls
from photon.fleet.explain.inquiry import Asking, explain
from photon.fleet.explain.question import ID_BYTES_MAX, Question, question_of
from photon.fleet.explain.story import Story
from photon.status.http import Answer

EXPLAIN_S = 9.0  # for asking everybody; processes that have not answered by then are named as missing
EXPLAIN_LIMIT_S = 10.0  # after this time the answer is that nothing was found
QUERY_BYTES_MAX = 4 * ID_BYTES_MAX  # an id with every byte escaped, and some more
FIELDS_MAX = 4


class Explained:
    def __init__(self, ask: Callable[[Question], Awaitable[Story]], limit_s: float = EXPLAIN_LIMIT_S) -> None:
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


def explained(settings: Settings, base: Path, tls: Tls | None, *, operator: bool) -> Explained:
    asking = Asking(settings, base, tls, EXPLAIN_S, operator=operator)
    return Explained(lambda question: explain(asking, question))
