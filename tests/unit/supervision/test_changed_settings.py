"""Which keys of the deployment file have changed, and which processes have read one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.loader import load
from photon.supervision.deployment import Deployment, changed_keys, reads

EXAMPLE = Path(__file__).parents[3] / "config" / "examples" / "two_datacentres.toml"


@pytest.mark.parametrize(
    ("key", "value", "some", "others"),
    [
        ("registry.retention", "9d", {"registry r1", "joiner east-1", "dispatcher west"}, {"wan"}),
        ("datacentre.east.watch", "poll", {"joiner east-1", "dispatcher east"}, {"registry r1", "joiner west-1"}),
        ("datacentre.east.copies", "127.0.0.1:7998", {"joiner east-1", "joiner west-1"}, {"dispatcher west"}),
        ("datacentre.east.region", "south", {"registry r1", "dispatcher east"}, {"dispatcher west", "wan"}),
        ("wan.round_trip", "7ms", {"wan"}, {"registry r1", "joiner east-1"}),
    ],
)
def test_readers_of_a_changed_key_are_to_be_restarted(key: str, value: str, some: set[str], others: set[str]) -> None:
    before = load(EXAMPLE, environment={}, flags=["wan.control=127.0.0.1:7999"])
    after = load(EXAMPLE, environment={}, flags=["wan.control=127.0.0.1:7999", f"{key}={value}"])
    assert changed_keys(before, after) == [key]
    found = {each.name for each in Deployment(EXAMPLE, after, Path()).services() if reads(each, [key])}
    assert some <= found
    assert not others & found
    assert changed_keys(before, before) == []
