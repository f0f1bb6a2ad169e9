"""The page's question about one event: parsed, bounded, one at a time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
import pytest

from photon.config.errors import PhotonError
from photon.fleet.explain.evidence import Evidence
from photon.fleet.explain.question import Place, Question
from photon.fleet.explain.story import Heard, tell
from photon.status.explained import QUERY_BYTES_MAX, Explained


class _Everybody:
    """Knows nothing; ``hold`` keeps the answer back."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.begun = asyncio.Event()
        self.hold: asyncio.Event | None = None

    async def ask(self, question: Question) -> dict[str, Any]:
        self.asked.append(question)
        self.begun.set()
        if self.hold is not None:
            await self.hold.wait()
        return tell(question, [Heard("east", Evidence())], None, "").as_json()


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("id=10.0.0.7%3A1%3A1760000000000000", Question(b"10.0.0.7:1:1760000000000000")),
        ("id=a+b%2Fc.log:7", Question(b"a b/c.log:7", Place("a b/c.log", 7))),
        ("id=%C3%A4", Question("ä".encode())),
        ("id=%ff", Question(b"\xff")),
        ("id=%ff:12", Question(b"\xff:12")),
        ("id=%2F%2Fs%3D&base64=1", Question(b"\xff\xfb")),
    ],
)
async def test_a_question_is_asked(query: str, question: Question) -> None:
    everybody = _Everybody()
    answer = await Explained(everybody.ask).answer(query)
    assert (answer.status, answer.media_type) == (200, "application/json")
    assert orjson.loads(answer.body)["verdict"] == "unknown"
    assert everybody.asked == [question]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "id=",
        "id=a&id=b",
        "name=x",
        "id=" + "x" * QUERY_BYTES_MAX,
        "&".join(["id=a"] * 9),
        "id=x&base64=1",
        "id=%ff%fe&base64=1",
        "id=%C3%A4&base64=1",
    ],
)
async def test_what_is_no_question_is_refused(query: str) -> None:
    everybody = _Everybody()
    answer = await Explained(everybody.ask).answer(query)
    assert answer.status == 400
    assert orjson.loads(answer.body)["error"]
    assert not everybody.asked


async def test_every_query_is_answered() -> None:
    rnd = random.Random(56)
    pieces = ["id=", "&", "base64=1", "%ff", "%fe%C3", "%00", "%0a", ":12", "=", "+", "a", "%ED%A0%80", ";", "\ufffd"]
    for _ in range(5_000):
        query = "".join(rnd.choices(pieces, k=rnd.randrange(9)))
        answer = await Explained(_Everybody().ask).answer(query)
        assert answer.status in (200, 400), query
        assert isinstance(orjson.loads(answer.body), dict)


async def test_one_at_a_time() -> None:
    everybody = _Everybody()
    everybody.hold = asyncio.Event()
    explained = Explained(everybody.ask)
    first = asyncio.create_task(explained.answer("id=a"))
    await everybody.begun.wait()
    assert (await explained.answer("id=b")).status == 503
    everybody.hold.set()
    assert (await first).status == 200
    assert (await explained.answer("id=b")).status == 200


async def test_it_ends_in_time_and_failures_are_one_line() -> None:
    everybody = _Everybody()
    everybody.hold = asyncio.Event()
    explained = Explained(everybody.ask, limit_s=0.01)
    assert (await explained.answer("id=a")).status == 504
    everybody.hold = None
    assert (await explained.answer("id=a")).status == 200

    async def fails(question: Question) -> dict[str, Any]:
        raise PhotonError("the registry is nowhere")

    answer = await Explained(fails).answer("id=a")
    assert (answer.status, orjson.loads(answer.body)) == (500, {"error": "the registry is nowhere"})
