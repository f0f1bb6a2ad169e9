"""Answers ``/explain.json?id=EVENT_ID`` with the JSON of ``photon explain``. Answers one question at a time, with a
time limit, in a separate process: it needs nearly all of Photon, and may run a user's adapter to search logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import orjson

from photon.config.errors import PhotonError, UsageError
from photon.config.own_process import in_own_process
from photon.config.settings import Settings
from photon.fleet.explain.question import ID_BYTES_MAX, Question, question_of
from photon.status.http import Answer

EXPLAIN_S = 9.0  # seconds to wait for processes; those that have not answered by then are listed as missing
EXPLAIN_LIMIT_S = 12.0  # time limit for the whole answer, including a process's start; then it is an error
QUERY_BYTES_MAX = 4 * ID_BYTES_MAX  # an id with every byte escaped, and some reserve
FIELDS_MAX = 4


class Explained:
    def __init__(
        self, ask: Callable[[Question], Awaitable[dict[str, Any]]], limit_s: float = EXPLAIN_LIMIT_S
    ) -> None:
        self._ask = ask
        self._limit_s = limit_s
        self._busy = False

    async def answer(self, query: str) -> Answer:
        """Answers a query. ``query``: the part of the URL after the question mark."""
        try:
            question = _question(query)
        except UsageError as error:
            return _failed(str(error), 400)
        if self._busy:
            return _failed("a search for another event is running; try again in a moment", 503)
        self._busy = True
        try:
            async with asyncio.timeout(self._limit_s):
                story = await self._ask(question)
        except TimeoutError:
            return _failed(f"no result within {self._limit_s:g} s; run photon explain with a longer --timeout", 504)
        except PhotonError as error:
            return _failed(str(error), 500)
        finally:
            self._busy = False
        return Answer(orjson.dumps(story), "application/json")


def _question(query: str) -> Question:
    """Parses the query. Raises UsageError."""
    if len(query) > QUERY_BYTES_MAX:
        raise UsageError(f"the query is too long: an event id has at most {ID_BYTES_MAX} bytes")
    try:
        fields = parse_qs(query, errors="surrogateescape", max_num_fields=FIELDS_MAX)
    except ValueError:
        fields = {}
    if len(fields.get("id", ())) != 1:
        raise UsageError("give one event: /explain.json?id=EVENT_ID")
    return question_of(fields["id"][0], raw=fields.get("base64") == ["1"])


def _failed(why: str, status: int) -> Answer:
    return Answer(orjson.dumps({"error": why}), "application/json", status)


def explained(settings: Settings, base: Path, who: str) -> Explained:
    """Returns the handler of /explain.json. ``who``: the identity with which it asks the deployment."""

    async def ask(question: Question) -> dict[str, Any]:
        asked = "photon.fleet.explain.inquiry:explained_for", who, settings, base, question, EXPLAIN_S
        return cast("dict[str, Any]", await in_own_process(*asked, timeout_s=EXPLAIN_LIMIT_S))

    return Explained(ask)
