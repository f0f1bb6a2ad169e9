"""Which datacentre keeps whose copy."""

from __future__ import annotations

import pytest

from photon.joiner.copies.api import keeper_of


@pytest.mark.parametrize(
    ("datacentre", "keepers", "expected"),
    [
        ("east", ["east", "west"], "west"),
        ("west", ["east", "west"], "east"),
        ("a", ["c", "b", "a"], "b"),
        ("c", ["c", "b", "a"], "a"),
        ("b", ["a", "c"], "c"),
        ("z", ["a", "c"], "a"),
        ("a", ["a"], None),
        ("a", [], None),
    ],
)
def test_the_next_in_order_of_names_keeps_it(datacentre: str, keepers: list[str], expected: str | None) -> None:
    assert keeper_of(datacentre, keepers) == expected
