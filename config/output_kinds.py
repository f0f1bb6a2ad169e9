"""The kinds of records that a pipeline writes, each in a directory of its output. In a module of its own, which the
command line can import for its options at no cost."""

from __future__ import annotations

KINDS = ("joined", "unmatched", "filtered", "rejected", "late")


def verdict_of(kind: str, reason: object) -> str:
    """The verdict that a record of this directory tells. With ``unmatched = "inline"`` an unmatched event's stands in
    ``joined``: that alone has a ``reason`` there."""
    return "unmatched" if kind == "joined" and reason is not None else kind
