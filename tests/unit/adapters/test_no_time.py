"""Foreign records without an event time: all have the same one, and options that compare times are refused."""

from __future__ import annotations

from typing import Any

import pytest

from photon.adapters.contract import AdapterError
from photon.adapters.join_adapters import adapter_of
from photon.config.loader import convert
from photon.config.settings import Settings

TIMED = {"format": "jsonl", "key": "k", "time": {"field": "t", "unit": "s"}}


def settings(**more: Any) -> Settings:
    join = {"primary": {"format": "jsonl", "key": "k"}, "foreign": {"format": "jsonl", "key": "k"}}
    return convert({"join": {"x": {**join, **more.pop("join", {})}}, **more}, "a file")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"registry": {"retention": "3d"}}, "join.x.foreign: time is missing, and registry.retention is set; remove"),
        (
            {"join": {"within": {"before": "1h"}}},
            "join.x: time is missing in foreign, but needed for within",
        ),
        ({"join": {"written_within": "1h"}}, "time is missing in foreign, but needed for written_within"),
        (
            {"join": {"match": "latest", "primary": TIMED}},
            'in foreign, but needed for match = "latest"',
        ),
    ],
)
def test_what_needs_event_times_is_refused(more: dict[str, Any], said: str, tmp_path: Any) -> None:
    with pytest.raises(AdapterError) as refused:
        adapter_of(settings(**more), "x", tmp_path)
    assert said in str(refused.value)
    assert adapter_of(settings(), "x", tmp_path).has_foreign_time is False
