"""Keys, ids and times that are a part of a field: alike one by one and in columns, in every format."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Joined, LogFile
from photon.adapters.shape import shape_from_table
from photon.adapters.shaping import Shaper

FILE = LogFile("a.log")
OWN = {"field": "url", "pattern": "^/[0-9]+"}
TIME = {"field": "url", "pattern": "at=([0-9]+)", "unit": "s"}


def adapter(key: Any, **side: Any) -> ConfiguredAdapter:
    side = side or {"format": "jsonl"}
    foreign = {**side, "key": key, "id": OWN, "time": TIME}
    return ConfiguredAdapter({"primary": {**side, "key": key}, "foreign": foreign, "where": "join.x"})


@given(st.text(), st.dictionaries(st.sampled_from(["id", "x.y"]), st.text() | st.integers() | st.none()))
def test_a_path_goes_through_json_in_text(before: str, request: dict[str, Any]) -> None:
    it = adapter("log.request.id")
    whole = json.dumps({"before": before, "log": {"request": request}}).encode()
    text = json.dumps({"before": before, "log": json.dumps({"request": request}) + "\n"}).encode()
    twice = json.dumps({"log": json.dumps({"request": json.dumps(request)})}).encode()
    found = it.primary_keys_of([whole, text, twice], FILE)
    assert found == it.primary_keys(b"\n".join([whole, text, twice, b""]), FILE)
    assert found[0] == found[1] == found[2]
    assert (found[0] is None) == (request.get("id") in (None, ""))


def test_a_shape_goes_through_json_in_text_and_hides_what_is_there() -> None:
    shape = shape_from_table(
        {
            "filter": [{"field": "foreign.log.level", "equals": "debug"}],
            "redact": {"foreign.log.user.mail": "mask"},
            "derive": [{"name": "foreign.id", "from": "foreign.log.user.id"}],
        },
        "join.x.shape",
    )
    foreign = orjson.dumps({"log": '{"level":"info","user":{"id":7,"mail":"ann@example.com"}}\n', "k": 1})
    found = Shaper(shape, "join.x.shape").shaped(Joined(foreign, b"{}"))
    assert isinstance(found, Joined)
    made = orjson.loads(found.foreign or b"")
    assert (made["id"], made["k"]) == (7, 1)
    assert orjson.loads(made["log"]) == {"level": "info", "user": {"id": 7, "mail": "****.com"}}


def test_parts_are_in_the_rule() -> None:
    keys: list[Any] = ["u", {"field": "u"}, {"field": "u", "part": "?a"}, {"field": "u", "pattern": "a"}]
    rules = [adapter(key).rule() for key in keys]
    assert rules[0] == rules[1]
    assert len(set(rules)) == 3
