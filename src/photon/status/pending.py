"""The oldest events without a verdict, as all workers of a pipeline say them together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHOWN = 20


def oldest_of(details: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Oldest first. Workers that share a retry store all say its rows: each is shown once."""
    found = {(row["log"], row["offset"]): row for each in details for row in each.get("oldest", [])}
    return sorted(found.values(), key=lambda row: -row["age_s"])[:SHOWN]
