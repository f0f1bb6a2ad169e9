"""The kinds of records that a pipeline writes, each in a directory of its output.

A separate module, so that the command line can import it cheaply for its options.
"""

from __future__ import annotations

KINDS = ("joined", "unmatched", "filtered", "rejected", "late")


def verdict_of(kind: str, reason: object) -> str:
    """Returns the verdict of a record in this directory.

    With ``unmatched = "inline"`` unmatched events are in ``joined``, where only they have a ``reason``.
    """
    return "unmatched" if kind == "joined" and reason is not None else kind
