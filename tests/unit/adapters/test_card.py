"""What ``photon adapter show`` tells of formats and adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.card import card_of
from photon.adapters.contract import AdapterError
from photon.adapters.scaffold import make_package
from photon.adapters.side import FORMATS


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_card_and_reads_its_samples(name: str) -> None:
    card = card_of(name, Path())
    assert (card.kind, card.summary != "") == ("format", True)
    assert [each.fault for each in card.samples] == [""] * len(card.samples)
    assert {each.key for each in card.samples} == (set() if name == "protobuf" else {b"u7"})
    assert ("key", "must be written") in card.settings
    assert ("pattern" in dict(card.settings)) == (name == "regex")


def test_a_file_adapter_has_one(tmp_path: Path) -> None:
    made = make_package("mine", tmp_path)
    card = card_of("src/mine/adapter.py:Mine", made)
    line = (made / "src/mine/adapter.py").read_text().splitlines().index("class Mine(Adapter):") + 1
    assert card.source == f"{made}/src/mine/adapter.py:{line}"
    assert (card.kind, card.api_version, card.settings) == ("file", 1, [("lowest_status", "500")])
    assert [(each.side, each.key, each.event_id, each.time) for each in card.samples] == [
        ("primary", b"r-1", None, ""), ("foreign", b"r-1", b"e-1", "2024-03-01T08:00:00.512000Z"),
    ]  # fmt: skip


def test_the_configured_adapter_and_unknown_names() -> None:
    assert card_of("configured", Path()).kind == "format"
    with pytest.raises(AdapterError, match="is no adapter"):
        card_of("no-such-adapter", Path())
