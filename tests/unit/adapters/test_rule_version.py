"""``Adapter.version`` is a part of the rule of an adapter in code."""

from __future__ import annotations

from photon.adapters.configured import ConfiguredAdapter

OPTIONS = {
    "primary": {"format": "jsonl", "key": "q"},
    "foreign": {"format": "jsonl", "key": "q", "id": "c", "time": {"field": "t", "unit": "s"}},
}


class Rules(ConfiguredAdapter):
    """Configured sides with code on top."""


def test_a_raised_version_is_another_rule() -> None:
    before, plain = Rules(OPTIONS).rule(), ConfiguredAdapter(OPTIONS).rule()
    assert Rules(OPTIONS).rule() == before != plain
    Rules.version = 2
    try:
        assert Rules(OPTIONS).rule() != before
        assert ConfiguredAdapter(OPTIONS).rule() == plain
    finally:
        Rules.version = 1
