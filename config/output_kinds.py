"""The kinds of records that a pipeline writes, each in a directory of its output. In a module of its own, which the
command line can import for its options at no cost."""

from __future__ import annotations

KINDS = ("joined", "unmatched", "filtered", "rejected", "late")
