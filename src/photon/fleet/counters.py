"""A ledger's counters in display order, each with a short description. ``read`` is the sum of ``joined`` to
``pending``."""

COUNTERS = {
    "read": "lines by verdict:",
    "joined": "with their primary event",
    "filtered": "left out by the adapter",
    "unmatched": "without a primary event",
    "late": "older than the registry remembers",
    "rejected": "could not be read, or rejected by the adapter",
    "elsewhere": "another datacentre was first",
    "duplicate": "have the id of another line",
    "pending": "wait for their primary event",
    "reread": "read again, counted before",
    "wasted": "joined, but another datacentre was first",
    "retimed": "have an id that was registered with another time",
    "ambiguous": "have a key that different primary events share",
    "unpaired": "unmatched, because their primary event is out of bounds",
}
EMPTY = dict.fromkeys(COUNTERS, 0)
VERDICTS = (*COUNTERS,)[1:8]
