"""One shard's state machine: decides who owns which id (paper, section 2.1), by the protocol's table of answers
(docs/idregistry.md, Protocol).

An id is found by its digest alone, regardless of its event time; the time of its first entry stays. Order of checks:
fence, incarnation, config (only for ids without an entry here: an id that moved since is found where it is), entry,
boundary; all when the entry is applied, from this shard's state. A token below its incarnation's watermark (rule 8)
is DONE after the config check, regardless of the entry: its ids were cleared. Rows of a batch are judged in order:
the first of equal ids wins. TOO_NEW needs a clock, so the leader's server answers it before it proposes, and only for
absent ids.

Invariant: from COMMITTED to token T for an id, no other token is answered COMMITTED for it until a Reopen that named
T raised the generation; below the boundary nothing absent becomes owned.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import BATCH_BITS, DIGEST_BYTES, I64, U8, U64, Answer
from photon.idregistry.core import commands as c
from photon.idregistry.core import scans
from photon.idregistry.core.batch_merging import merged
from photon.idregistry.core.id_bucket import CLEARED, OWNED, REOPENED, Entries
from photon.idregistry.core.id_table import BUCKET_BITS, Entry, IdTable, digest_columns
from photon.idregistry.core.marked_states import Marked, Marks
from photon.idregistry.core.reshard_plan import SlotSeed
from photon.idregistry.core.restored_shard import CLOSED, register_again
from photon.idregistry.core.shard_snapshot import VERSION as SNAPSHOT_VERSION
from photon.idregistry.core.shard_snapshot import (
    ShardImage,
    ShardReading,
    ShardState,
    SlotState,
    read_shard,
    state_chunks,
    write_shard,
)
from photon.idregistry.core.shard_standing import ShardFacts, Standing, misplaced
from photon.idregistry.core.state_checks import Checked, Checks, state_hash
from photon.idregistry.raft.api import Frozen

WRONG_SHARD = 200  # internal answer: not an id of this shard under its config. Sent to clients as STATUS_WRONG_SHARD.
# Internal answer: this shard does not know the incarnation. Sent to clients as STATUS_UNKNOWN_CALLER.
UNKNOWN_CALLER = 201
MAX_DATACENTRES = 255
MAX_SLOTS = 1 << 20

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BatchAnswers:
    inserts: Verdicts
    clears: Verdicts  # without owners


class ShardMachine:
    """The state machine of one shard. ``apply`` runs on the driver's thread; other threads look up, under a lock."""

    def __init__(self, bucket_bits: int = BUCKET_BITS) -> None:
        self._bucket_bits = bucket_bits
        self._lock = threading.Lock()
        self._table = IdTable(bucket_bits)
        self._state = ShardState()
        self.applied = 0  # the last entry
        self.marks = Marks()
        self.checks = Checks()

    # -- StateMachine -------------------------------------------------------------------------------------------
    def apply(self, index: int, command: bytes) -> BatchAnswers | scans.Below | Checked | U8 | int | str:
        """Applies a committed command. Raises for a command of another release, which stops the replica.

        Results: Batch -> BatchAnswers; ClearBelow -> Below; Reopen -> Answer column (REOPENED or NO_OP); Boundary ->
        the boundary, ns; CheckState -> Checked; all others -> the reason for a refusal, empty if accepted.
        """
        return self._apply(index, c.decode_shard(command))

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        """Applies committed commands whose results nobody waits for; merges consecutive batches."""
        for index, decoded in merged(enumerate(map(c.decode_shard, commands), first)):
            self._apply(index, decoded)

    def _apply(self, index: int, decoded: c.ShardCommand) -> BatchAnswers | scans.Below | Checked | U8 | int | str:
        with self._lock:
            self.applied = index
            match decoded:
                case c.Batch():
                    return BatchAnswers(self._insert(decoded), self._clear(decoded.clears(), decoded.config))
                case c.Announce():
                    return self._announce(decoded)
                case c.Fence():
                    return self._fence(decoded.slot)
                case c.Boundary():
                    return self._raise_boundary(decoded.time_ns)
                case c.CheckState():
                    return self._check_state(decoded)
                case c.Barrier():
                    return self._keep_marked(decoded.mark)
                case c.OpenShard():
                    return self._open(decoded.boundary_ns)
                case c.RegisterAgain():
                    return register_again(self._table, self._state, decoded, self._announce)
                case c.Reopen():
                    return self._reopen(decoded)
                case c.ClearBelow():
                    return scans.clear_below(self._table, self._state, decoded)
                case c.Seed():
                    return self._seed(decoded)
                case c.Configure() | c.Prepare() | c.Activate() | c.Abort() | c.Close():
                    return self._state.sharding.apply(decoded, len(self._table), self._state.boundary)

    def snapshot(self) -> Iterable[bytes]:
        """Returns the state as of this call, even if read later, in chunks of at most 1 MiB."""
        with self._lock:
            image = ShardImage(self.applied, self._bucket_bits, self._state, self._table.freeze())
            return Frozen(write_shard(image), self._lock)

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replaces the state with a snapshot's. Raises SnapshotError."""
        self._replace(read_shard(chunks))

    def restoring(self) -> ShardReading:
        return ShardReading(self._replace)

    def _replace(self, image: ShardImage) -> None:
        with self._lock:
            self._table, self._state, self.applied = image.table, image.state, image.applied
            self._bucket_bits = image.bucket_bits

    # -- reads from other threads -------------------------------------------------------------------------------
    def look_up(self, digests: bytes, times: I64) -> Verdicts:
        """Looks ids up in local memory, as a hint: PRESENT with owner, ABSENT, BELOW_BOUNDARY or WRONG_SHARD."""
        lo, hi = digest_columns(digests)
        with self._lock:
            met = self._table.look_up(lo, hi)
            present = (met.states == OWNED) | (met.states == CLEARED)
            answers = np.where(present, Answer.PRESENT, Answer.ABSENT).astype(np.uint8)
            answers[(met.states == 0) & (times < self._state.boundary)] = Answer.BELOW_BOUNDARY
            answers[(met.states == 0) & ~self._state.sharding.own(digests)] = WRONG_SHARD
            return self._with_owners(answers, met, present)

    def holds(self, digests: bytes, before_ns: int) -> Bools:
        """True for ids with an entry here; all False if no bucket starts before ``before_ns``."""
        with self._lock:
            return self._table.holds(*digest_columns(digests), before_ns)

    @property
    def serving(self) -> tuple[Standing, tuple[c.Range, ...]]:
        """The shard's standing and its active config's ranges, read at one moment."""
        with self._lock:
            return self._state.sharding.standing, self._state.sharding.ranges

    def trace(self, digest: bytes, time_ns: int) -> scans.Traced:
        """Returns one id's entry and its owner's slot, for display."""
        with self._lock:
            return scans.traced(self._table.get(digest), self._state, time_ns)

    def owned_page(self, slot: str, upto: int, cursor: bytes, limit: int = scans.PAGE_IDS_MAX) -> scans.EntryPage:
        """Returns the ids that incarnations of a slot up to ``upto`` own. Raises CursorError."""
        with self._lock:
            return scans.owned_page(self._table, self._state, slot, upto, cursor, limit)

    def reopened_page(self, cursor: bytes, limit: int = scans.PAGE_IDS_MAX) -> scans.EntryPage:
        """Returns the reopened ids, which wait for a record with their generation. Raises CursorError."""
        with self._lock:
            return scans.reopened_page(self._table, self._state, cursor, limit)

    def knows(self, incarnations: Iterable[int]) -> bool:
        known = self._state.incarnations
        return all(incarnation in known for incarnation in incarnations)

    def datacentre_of(self, incarnation: int) -> str:
        """Returns the datacentre of an incarnation's slot; empty if unknown here."""
        slot = self._state.slots.get(self._state.incarnations.get(incarnation, ""))
        return self._state.datacentres[slot.datacentre] if slot is not None and slot.datacentre >= 0 else ""

    def is_fenced(self, slot: str) -> bool:
        state = self._state.slots.get(slot)
        return state is not None and state.fenced

    @property
    def configured(self) -> bool:
        return self._state.sharding.number != 0

    @property
    def sharding(self) -> ShardFacts:
        with self._lock:
            return self._state.sharding.facts(len(self._table), self._state.boundary)

    @property
    def closed(self) -> bool:
        """True if restored from a backup and not opened yet: ids registered since may be missing."""
        return self._state.held

    @property
    def ranges(self) -> tuple[c.Range, ...]:
        return self._state.sharding.ranges

    def has_heard(self, slot: SlotSeed) -> bool:
        name, _, newest, retired = slot
        known = self._state.slots.get(name)
        if known is None:
            return not newest and not retired
        return known.newest >= newest and known.fenced >= retired

    def bucket_numbers(self) -> list[int]:
        with self._lock:
            return self._table.bucket_numbers()

    def misplaced(self, bucket: int) -> int:
        """Counts a bucket's ids that do not belong to this shard; more than 0 is a defect."""
        with self._lock:
            rows = self._table.bucket_rows(bucket)
            return misplaced(rows, bucket << self._bucket_bits, self._state.sharding)

    @property
    def boundary(self) -> int:
        """The boundary in ns UTC; NO_BOUNDARY means that nothing is too old."""
        return self._state.boundary

    @property
    def ids(self) -> int:
        with self._lock:
            return len(self._table)

    def blocks(self) -> list[tuple[int, int]]:
        """Returns the (bucket, block) pairs of all rows, for ``adds_up``."""
        with self._lock:
            return self._table.blocks()

    def adds_up(self, bucket: int, block: int) -> bool:
        """True if the rows of a block still match their sum."""
        with self._lock:
            return self._table.adds_up(bucket, block)

    @property
    def resident_bytes(self) -> int:
        with self._lock:
            return self._table.resident_bytes

    # -- insert -------------------------------------------------------------------------------------------------
    def _insert(self, batch: c.Batch) -> Verdicts:
        if not batch.digests:
            return Verdicts.blank(0, 0, tuple(self._state.datacentres))
        ids = batch.inserts()
        times, tokens = ids.times, ids.tokens
        lo, hi = digest_columns(ids.digests)
        answers = self._check_callers(batch.callers, tokens)
        takes = self._state.sharding.takes(ids.digests, times, batch.config)
        under = scans.under_watermark(self._state, tokens)
        may_add = (answers == 0) & takes & (times >= self._state.boundary)
        if under is not None:
            may_add &= ~under
        if self._state.held:
            may_add[:] = False
        met = self._table.add(lo, hi, times, tokens, ids.kinds, ids.tags, ids.generations, may_add)
        if met.added.all():  # nearly always: every new row passed all checks, and no other token owns it
            self._state.sharding.entered(times)
            return Verdicts.blank(len(ids), Answer.COMMITTED, tuple(self._state.datacentres))
        answers[(answers == 0) & ~takes & (met.states == 0)] = WRONG_SHARD
        if under is not None:
            answers[under & (answers == 0)] = Answer.DONE
        if self._state.held:
            answers[answers == 0] = CLOSED
        passed = answers == 0
        self._state.sharding.entered(times[met.added])
        same = met.tokens == tokens
        by_entry = np.full(len(times), Answer.TAKEN, np.uint8)
        by_entry[same & (met.states == CLEARED)] = Answer.DONE
        by_entry[met.added | (same & (met.states == OWNED))] = Answer.COMMITTED
        by_entry[(met.states == 0) & ~met.added] = Answer.BELOW_BOUNDARY
        np.copyto(answers, by_entry, where=passed)
        reopened = np.flatnonzero(passed & (met.states == REOPENED))
        if reopened.size:
            self._insert_reopened(reopened, ids, answers, met)
        if under is not None:  # these rows are DONE regardless of the present entry
            met.tokens[under], met.kinds[under], met.tags[under] = tokens[under], ids.kinds[under], ids.tags[under]
        owned_by = (answers == Answer.TAKEN) | (answers == Answer.DONE)
        return self._with_owners(answers, met, owned_by & (met.tokens != 0))

    def _check_callers(self, callers: list[tuple[int, int]], tokens: U64) -> U8:
        """Checks each row's fence and incarnation; returns 0 for a row that passes, else its answer."""
        answers = np.zeros(len(tokens), np.uint8)
        start = 0
        for caller, count in callers:
            rows = slice(start, start + count)
            start += count
            slot = self._state.incarnations.get(caller)
            if slot is None:
                answers[rows] = UNKNOWN_CALLER
                continue
            state = self._state.slots[slot]
            if state.fenced:
                answers[rows] = Answer.FENCED
            elif caller != state.newest:
                answers[rows] = Answer.STALE_INCARNATION
            else:
                incarnations = tokens[rows] >> np.uint64(BATCH_BITS)
                for each in set(incarnations.tolist()):
                    if self._state.incarnations.get(each) != slot:
                        answers[rows][incarnations == each] = UNKNOWN_CALLER
        return answers

    def _insert_reopened(self, rows: I64, ids: Ids, answers: U8, met: Entries) -> None:
        """Inserts reopened ids one by one, since an earlier row of the batch may have taken the id. Rare."""
        for i in rows.tolist():
            digest = ids.digests[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]
            time, token = int(ids.times[i]), int(ids.tokens[i])
            entry = self._table.get(digest)
            assert entry is not None, "a reopened id has no entry"
            generation = 0 if ids.generations is None else int(ids.generations[i])
            if entry.state == REOPENED and entry.generation == generation:
                self._table.put(digest, time, Entry(OWNED, token, int(ids.kinds[i]), int(ids.tags[i]), generation))
                answers[i] = Answer.COMMITTED
            elif entry.state == OWNED:  # taken by an earlier row
                answers[i] = Answer.COMMITTED if entry.token == token else Answer.TAKEN
                met.states[i], met.tokens[i], met.kinds[i], met.tags[i] = OWNED, entry.token, entry.kind, entry.tag
            else:
                answers[i] = Answer.TAKEN

    # -- clear, reopen, collection ------------------------------------------------------------------------------
    def _clear(self, ids: Ids, config: int) -> Verdicts:
        """Clears ids. ``config``: the config under which no other shard held them."""
        if not len(ids):
            return Verdicts.blank(0)
        met = self._table.clear(*digest_columns(ids.digests), ids.tokens)
        answers = np.full(len(ids), Answer.REFUSED, np.uint8)
        answers[(met.states == CLEARED) | ((met.states == OWNED) & (met.tokens == ids.tokens))] = Answer.CLEARED
        answers[(met.states == 0) & (ids.times < self._state.boundary)] = Answer.NO_OP
        own = self._state.sharding.own(ids.digests) & (config == self._state.sharding.standing.config)
        answers[(met.states == 0) & ~own] = WRONG_SHARD
        return Verdicts.plain(answers)

    def _reopen(self, command: c.Reopen) -> U8:
        ids = command.ids()
        answers = np.full(len(ids), Answer.NO_OP, np.uint8)
        if self._state.held:  # ids registered and cleared since the backup may look owned here
            answers[:] = CLOSED
            return answers
        own = self._state.sharding.keeps(ids.digests, ids.times, command.config)
        for i, time in enumerate(ids.times.tolist()):
            digest = ids.digests[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES]
            token, generation = int(ids.tokens[i]), 0 if ids.generations is None else int(ids.generations[i])
            entry = self._table.get(digest)
            if entry is None and not own[i]:
                answers[i] = WRONG_SHARD
                continue
            if entry is None and command.operator and time < self._state.boundary:
                entry = Entry(CLEARED, token, 0, 0, generation)  # collected: restored as it was exported
            if entry is None or not _may_reopen(entry, token, generation, command.operator):
                continue
            if command.retired and not scans.is_retired(self._state, token):
                continue
            # Keep the former owner's name: TAKEN reports it until another token takes the id.
            former = scans.known_token(self._state, token)
            self._table.put(digest, time, Entry(REOPENED, former, entry.kind, entry.tag, entry.generation + 1))
            answers[i] = Answer.REOPENED
        return answers

    def _raise_boundary(self, time_ns: int) -> int:
        if time_ns > self._state.boundary:
            self._state.boundary = time_ns
            self._state.sharding.passed(time_ns)
            self._table.collect(time_ns)
        return self._state.boundary

    def _open(self, boundary_ns: int | None) -> str:
        if not self._state.held:
            again = boundary_ns is None or self._state.boundary >= boundary_ns
            return "" if again else f"shard {self._state.sharding.number} is already open"
        self._state.held = False
        if boundary_ns is not None:
            self._raise_boundary(boundary_ns)
        return ""

    def _check_state(self, command: c.CheckState) -> Checked:
        self.checks.compare(command)
        image = ShardImage(self.applied, self._bucket_bits, self._state)
        found = state_hash(state_chunks(image), self._table)
        return self.checks.take(Checked(SNAPSHOT_VERSION, self.applied, found))

    def _keep_marked(self, mark: bytes) -> int:
        if mark:
            image = ShardImage(self.applied, self._bucket_bits, self._state, self._table.freeze())
            self.marks.keep(Marked(mark, self.applied, Frozen(write_shard(image), self._lock)))
        return self.applied

    # -- facts that concern every shard, each by an entry of its own ----------------------------------------------
    def _announce(self, command: c.Announce) -> str:
        state = self._state
        for incarnation in command.incarnations:
            holder = state.incarnations.get(incarnation, command.slot)
            if holder != command.slot:
                return f"incarnation {incarnation} belongs to slot {holder}, not to {command.slot}"
        slot = state.slots.get(command.slot)
        if slot is None and len(state.slots) >= MAX_SLOTS:
            return f"more than {MAX_SLOTS} slots"
        if slot is None or slot.datacentre < 0:
            if command.datacentre not in state.datacentres:
                if len(state.datacentres) >= MAX_DATACENTRES:
                    return f"more than {MAX_DATACENTRES} datacentres"
                state.datacentres.append(command.datacentre)
            datacentre = state.datacentres.index(command.datacentre)
            slot = SlotState(datacentre, 0, slot.fenced if slot else False)
            state.slots[command.slot] = slot
        for incarnation in command.incarnations:
            state.incarnations[incarnation] = command.slot
        slot.newest = max(slot.newest, *command.incarnations)
        return ""

    def _fence(self, name: str) -> str:
        slot = self._state.slots.setdefault(name, SlotState(-1, 0))
        slot.fenced = True
        return ""

    def _seed(self, command: c.Seed) -> str:
        for name, datacentre, newest, retired in command.slots:
            reason = self._announce(c.Announce(name, datacentre, [newest])) if newest else ""
            if reason:
                return reason
            if retired:
                self._fence(name)
        return ""

    # -- owners -------------------------------------------------------------------------------------------------
    def _with_owners(self, answers: U8, met: Entries, where: Bools) -> Verdicts:
        """Returns verdicts with the owner columns of the rows in ``where``, and 0 for other rows."""
        tokens = np.where(where, met.tokens, 0).astype(np.uint64)
        datacentres = np.zeros(len(answers), np.uint8)
        rows = np.flatnonzero(where)
        if rows.size:
            values, back = np.unique(tokens[rows] >> np.uint64(BATCH_BITS), return_inverse=True)
            slots, incarnations = self._state.slots, self._state.incarnations
            index = [slots[incarnations[value]].datacentre for value in values.tolist()]
            datacentres[rows] = np.array(index, np.uint8)[back]
        kinds = np.where(where, met.kinds, 0).astype(np.uint8)
        tags = np.where(where, met.tags, 0).astype(np.uint32)
        times = np.where(where, met.times, 0)
        return Verdicts(answers, tokens, kinds, tags, datacentres, tuple(self._state.datacentres), times)


def _may_reopen(entry: Entry, token: int, generation: int, operator: bool) -> bool:
    """True for an owned entry with this token or, if ``operator``, a cleared one with this token and generation."""
    if entry.state == REOPENED or entry.token != token:
        return False
    return entry.state == OWNED or (operator and entry.generation == generation)
