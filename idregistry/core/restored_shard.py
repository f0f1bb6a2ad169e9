"""A shard restored from a backup: closed until the ids registered since the backup are registered again.

Ids that are not in the backup may have been written already: if the shard were open, such an id would be given to
another token, and its record written twice. While it is closed, inserts are answered "unknown" (callers wait), and
only ``RegisterAgain`` adds ids, under the tokens that their records carry. ``OpenShard`` ends this, on an operator's
order; with a boundary above every event time that may have been registered, unknown older ids are refused (they
become late), and nothing can be written twice even if nothing was registered again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from photon.batch.ids import Ids
from photon.idregistry.api import BATCH_BITS, DIGEST_BYTES, U8, Answer
from photon.idregistry.core import commands as c
from photon.idregistry.core.id_bucket import CLEARED, OWNED, REOPENED, Entries
from photon.idregistry.core.id_table import Entry, IdTable, digest_columns
from photon.idregistry.core.shard_snapshot import ShardState

CLOSED = 202  # Internal answer: the shard is closed. Sent to clients as STATUS_UNKNOWN.
CLOSED_REASON = "was restored from a backup and is closed: open it (photon registry restore --help says how)"


def register_again(
    table: IdTable, state: ShardState, command: c.RegisterAgain, announce: Callable[[c.Announce], str]
) -> U8 | str:
    """Registers ids again. Answers per id: COMMITTED (its token owns it), DONE (cleared under its token), TAKEN
    (another token has it), BELOW_BOUNDARY (too old to keep).

    A string says why the whole command is refused.
    """
    if not state.held:
        return "is open: ids can be registered again only in a restored shard that is still closed"
    ids = command.ids()
    times, tokens = ids.times, ids.tokens
    incarnations = np.unique(tokens >> np.uint64(BATCH_BITS)).tolist()
    refused = announce(c.Announce(command.slot, command.datacentre, incarnations))
    if refused:
        return refused
    lo, hi = digest_columns(ids.digests)
    takes = state.sharding.takes(ids.digests, times, command.config)
    above = takes & (times >= state.boundary)
    if not (takes | (table.look_up(lo, hi).states != 0)).all():
        return "not all ids belong to this shard"
    met = table.add(lo, hi, times, tokens, ids.kinds, ids.tags, ids.generations, above)
    state.sharding.entered(times[met.added])
    if command.cleared:
        met = table.clear(lo, hi, tokens)
    _retake(table, ids, met, cleared=command.cleared)
    same = met.tokens == tokens
    answers = np.full(len(times), Answer.TAKEN, np.uint8)
    answers[met.added | (same & (met.states == OWNED))] = Answer.COMMITTED
    answers[same & ((met.states == CLEARED) | ((met.states == OWNED) & command.cleared))] = Answer.DONE
    answers[(met.states == 0) & ~met.added] = Answer.BELOW_BOUNDARY
    return answers


def _retake(table: IdTable, ids: Ids, met: Entries, *, cleared: bool) -> None:
    """Overwrites ids that are reopened in the backup but whose records have another token than the former owner's:
    that token took them after the backup.
    """
    for i in np.flatnonzero((met.states == REOPENED) & (met.tokens != ids.tokens)).tolist():
        digest, time = ids.digests[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES], int(ids.times[i])
        entry = table.get(digest)
        if entry is None:
            raise AssertionError("a reopened id has no entry")
        if entry.state == REOPENED:
            state = CLEARED if cleared else OWNED
            entry = Entry(state, int(ids.tokens[i]), int(ids.kinds[i]), int(ids.tags[i]), entry.generation)
            table.put(digest, time, entry)
        met.states[i], met.tokens[i] = entry.state, entry.token
