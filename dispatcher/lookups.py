"""Asking the registry before a joiner (paper, section 3.2, step 1): ids with a verdict need no joiner. Pure.

Worth its round trip where another datacentre has probably been there before: in catch-up, or with several pipelines.
"""

from __future__ import annotations

import enum

import numpy as np

from photon.dispatcher.core import Batch, Core
from photon.dispatcher.events import Item
from photon.idregistry.api import I64, Answer, Kind, LookUps
from photon.joiner.api import TakenBy
from photon.joiner.verdicts import tag_of


class LookUpPolicy(enum.StrEnum):
    """When to ask."""

    NEVER = "never"
    """One datacentre and a fresh state: nobody can have been there."""
    BACKLOG = "backlog"
    """While more than ``BACKLOG_BYTES`` of the logs are unread."""
    ALWAYS = "always"


BACKLOG_BYTES = 4 << 20


def wanted(policy: LookUpPolicy, unread_bytes: int) -> bool:
    """Whether the next batch is looked up first."""
    return policy is LookUpPolicy.ALWAYS or (policy is LookUpPolicy.BACKLOG and unread_bytes > BACKLOG_BYTES)


def question(batch: Batch) -> tuple[bytes, I64]:
    """Digests and event times, for ``Registry.look_up``."""
    digests = b"".join([item.event.digest for item in batch.items])
    return digests, np.array([item.event.event_time_ns for item in batch.items], dtype=np.int64)


def settle(core: Core, batch: Batch, found: LookUps, datacentre: str, now_ns: int) -> Batch:
    """Counts what has a verdict; the batch of the others. Absent and unknown ones go on to a joiner.

    A reopened id is answered ABSENT, and a hint may be stale only towards absent: it never decides wrongly.
    """
    answers = found.answers
    if not ((answers == Answer.PRESENT) | (answers == Answer.BELOW_BOUNDARY)).any():
        return batch
    left: list[Item] = []
    for row, item in enumerate(batch.items):
        answer = int(answers[row])
        kind = int(found.owner_kinds[row])
        if answer == Answer.PRESENT and kind in _KINDS:
            owner = found.datacentres[int(found.owner_datacentres[row])]
            same = owner == datacentre and int(found.owner_tags[row]) == tag_of(item.event)
            core.taken(item, TakenBy(owner, _KINDS[kind], same))
        elif answer == Answer.BELOW_BOUNDARY:
            core.late(item, now_ns)
        else:
            left.append(item)
    return Batch(left, batch.read_past_ns)


_KINDS = {int(kind): kind for kind in Kind}
