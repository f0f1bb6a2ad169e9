"""The registry's requests, answers and applied entries in a schedule, and checks that the entries explain the
answers.

The log of each group, in the order of its entries, is the history's witness: an answer is right if some entry that
carried the request gave it, at a time between the request and the answer (so the history is linearisable, as entries
are applied in order), and if a plain model of the protocol's table gives the same answers to the log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from photon.batch.columns import I64
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import DIGEST_BYTES, U8, U64, Answer, Opened, Slot, incarnation_of
from photon.idregistry.client.grpc_client import GrpcBackend
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.id_table import BUCKET_BITS
from photon.idregistry.core.shard_snapshot import ShardReading
from photon.idregistry.core.state_machine import UNKNOWN_CALLER, WRONG_SHARD, BatchAnswers, ShardMachine
from photon.idregistry.raft.api import StateMachine
from tests.simulation.world.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world.process import Clock

NEVER = float("inf")
END = 2**63 - 1

Config = list[tuple[int, tuple[int, ...]]]  # (start, shards), ascending
# (insert or clear or reopen, digest, token, generation) -> times and answers from some log.
Given = Mapping[tuple[str, bytes, int, int], Sequence[tuple[float, int]]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One answered row of a client's call."""

    what: str  # insert or clear
    digest: bytes
    token: int
    generation: int
    answer: int
    owner: int  # token of the owner, if the answer names one
    invoked: float
    answered: float


@dataclass(frozen=True, slots=True)
class LookedUp:
    """One answered row of a look-up, at some replica."""

    digest: bytes
    time: int
    answer: int
    tag: int  # tag of the owner's entry, if there is an owner
    invoked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Opening:
    """An answered open_slot."""

    slot: str
    nonce: bytes
    opened: Opened
    invoked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Applied:
    """An entry of a group's log, and its result when first applied."""

    index: int
    encoded: bytes
    command: Any
    result: Any
    at: float


def plain(result: Any) -> Any:
    """A result in a form that can be compared."""
    if isinstance(result, BatchAnswers):
        rows = result.inserts
        return (
            rows.outcomes.tolist(),
            rows.owner_tokens.tolist(),
            rows.owner_kinds.tolist(),
            result.clears.outcomes.tolist(),
        )
    return result.tolist() if hasattr(result, "tolist") else result


def owner_of(shards: tuple[int, ...], digest: bytes) -> int:
    """One id at a time, and differently from the code under test."""
    return shards[int.from_bytes(digest[8:], "little") % len(shards)]


# -- who tells it ----------------------------------------------------------------------------------------------------
class Watched:
    """A state machine of a replica whose every step the history sees."""

    def __init__(self, history: History, name: str, group: int, machine: StateMachine) -> None:
        self._history, self._name, self._group = history, name, group
        self.machine = machine

    def apply(self, index: int, command: bytes) -> Any:
        result = self.machine.apply(index, command)
        self._history.applied(self._name, self._group, index, command, result)
        return result

    def snapshot(self) -> Iterable[bytes]:
        return self.machine.snapshot()

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.machine.restore(chunks)


class WatchedShard(Watched):
    """A watched machine of a shard."""

    machine: ShardMachine

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        """Applies entries singly, for their results; a copy applies them together and must have the same state
        afterwards."""
        together = ShardMachine()
        together.restore(self.machine.snapshot())
        together.apply_run(first, commands)
        for index, command in enumerate(commands, first):
            self.apply(index, command)
        if list(together.snapshot()) != list(self.machine.snapshot()):
            raise Violation(f"{self._name}: entries {first} to {index} come to another state as one run")

    def restoring(self) -> ShardReading:
        return self.machine.restoring()


class WatchedRegistry(RoutedRegistry):
    """The production client; the history sees its requests and answers."""

    def __init__(self, backend: GrpcBackend, clock: Clock, history: History) -> None:
        super().__init__(backend, clock)
        self._history = history

    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened | None:
        invoked = self._history.now()
        opened = await super().open_slot(slot, last, nonce)
        if opened is not None and (opened.newest or opened.incarnation):
            self._history.openings.append(Opening(slot.name, nonce, opened, invoked, self._history.now()))
        return opened

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        history, invoked = self._history, self._history.now()
        rows = list(zip(_digests(inserts.digests), inserts.tokens.tolist(), _generations(inserts), strict=True))
        for row in rows:
            history.begun[row].append(invoked)
        found = await super().insert(inserts, timeout=timeout)
        answers = zip(rows, found.outcomes.tolist(), found.owner_tokens.tolist(), strict=True)
        history.asked += [Asked("insert", *row, *said, invoked, history.now()) for row, *said in answers]
        return found

    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8:
        history, invoked = self._history, self._history.now()
        answers = await super().clear(digests, times, tokens, timeout=timeout)
        rows = zip(_digests(digests), tokens.tolist(), answers.tolist(), strict=True)
        history.asked += [
            Asked("clear", digest, token, 0, said, 0, invoked, history.now()) for digest, token, said in rows
        ]
        return answers

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        history, invoked = self._history, self._history.now()
        found = await super().look_up(digests, times, timeout=timeout)
        rows = zip(_digests(digests), times.tolist(), found.outcomes.tolist(), found.owner_tags.tolist(), strict=True)
        history.looked_up += [LookedUp(*row, invoked, history.now()) for row in rows]
        return found


# -- what must hold --------------------------------------------------------------------------------------------------
@dataclass
class History:
    """Everything that the checks need. ``now``: seconds of the world; ``bucket_bits``: size of a collected bucket."""

    now: Callable[[], float]
    bucket_bits: int = BUCKET_BITS
    asked: list[Asked] = field(default_factory=list)
    # When the inserts of an id, token and generation were sent, answered or not (their process may have died).
    begun: dict[tuple[bytes, int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    openings: list[Opening] = field(default_factory=list)
    looked_up: list[LookedUp] = field(default_factory=list)
    logs: dict[int, dict[int, Applied]] = field(default_factory=lambda: defaultdict(dict))

    def applied(self, name: str, group: int, index: int, command: bytes, result: Any) -> None:
        """A replica applied an entry; any replica that applied it before must have had the same entry and result."""
        log = self.logs[group]
        known = log.get(index)
        if known is None:
            decoded = (c.decode_config if group == CONFIG_GROUP else c.decode_shard)(command)
            log[index] = Applied(index, command, decoded, plain(result), self.now())
        elif known.encoded != command:
            raise Violation(f"group {group}, entry {index}: {name} applied another command than another replica")
        elif plain(result) != known.result:
            raise Violation(
                f"group {group}, entry {index}: {name} came to {plain(result)}, another to {known.result}"
            )

    def log(self, group: int) -> list[Applied]:
        """The log in order."""
        return [entry for _, entry in sorted(self.logs[group].items())]

    @property
    def shards(self) -> list[int]:
        return sorted(group for group in self.logs if group != CONFIG_GROUP)

    # --- checks -----------------------------------------------------------------------------------------------
    def check(self) -> None:
        """Checks at rest. Raises Violation."""
        given: dict[tuple[str, bytes, int, int], list[tuple[float, int]]] = defaultdict(list)
        # How often an id became free again: reopened, or collected and entered with a later event time.
        again: Counter[bytes] = Counter()
        accepted: dict[bytes, set[int]] = defaultdict(set)
        holders = {
            entry.result.incarnation: entry.command.slot
            for entry in self.log(CONFIG_GROUP)
            if isinstance(entry.command, c.OpenSlot)
        }
        retired: dict[str, float] = {}  # slot -> when one of its ids was given up, as it was fenced everywhere
        forgotten: Counter[bytes] = Counter()
        for shard in self.shards:
            self._check_boundary(shard)
            model = ShardModel(shard, self.bucket_bits)
            for entry in self.log(shard):
                for what, digest, token, generation, answer in model.apply(entry):
                    given[what, digest, token, generation].append((entry.at, answer))
                    if what == "insert" and answer == Answer.COMMITTED:
                        accepted[digest].add(shard)
                    if what == "reopen" and answer == Answer.REOPENED:
                        again[digest] += 1
                        if entry.command.retired:
                            slot = holders[incarnation_of(token)]
                            retired[slot] = min(entry.at, retired.get(slot, NEVER))
            forgotten += model.forgotten
        self._check_retired(given, holders, retired)
        for digest, shards in accepted.items():
            if len(shards) > 1 + forgotten[digest]:
                raise Violation(f"id {digest.hex()[:8]} was accepted by shards {sorted(shards)}")
        self._check_decisions()
        self._check_one_owner(again + forgotten)
        self._check_too_new(given)
        for each in self.asked:
            self._check_answer(each, given[each.what, each.digest, each.token, each.generation])
        self._check_openings()
        self._check_look_ups()

    def _check_retired(self, given: Given, holders: Mapping[int, str], retired: Mapping[str, float]) -> None:
        """Once an id of a slot is given up, no shard accepts anything more from that slot, even if shards have been
        added since."""
        for (what, digest, token, _), answers in given.items():
            slot = holders.get(incarnation_of(token), "")
            for at, answer in answers:
                if what == "insert" and answer == Answer.COMMITTED and at > retired.get(slot, NEVER):
                    name, since = digest.hex()[:8], retired[slot]
                    raise Violation(f"{name} was accepted at {at:.3f} of {slot}, fenced everywhere at {since:.3f}")

    def _check_decisions(self) -> None:
        """Each change ends once; shards follow the decision."""
        decided: dict[int, bool] = {}
        for entry in self.log(CONFIG_GROUP):
            if isinstance(entry.command, c.Decide) and not entry.result:
                number, activate = entry.command.config, entry.command.activate
                if decided.setdefault(number, activate) != activate:
                    raise Violation(f"change {number} was decided twice, otherwise")
        for shard in self.shards:
            for entry in self.log(shard):
                command = entry.command
                if isinstance(command, c.Activate) and not entry.result and decided.get(command.config) is not True:
                    raise Violation(f"shard {shard} activated change {command.config}, decided: {decided}")

    def _check_look_ups(self) -> None:
        """A hint may be old, but never untrue: it names an owner that was one by then, a boundary that was passed."""
        owners: dict[tuple[bytes, int], float] = {}
        boundaries: list[tuple[float, int]] = []
        for shard in self.shards:
            for entry in self.log(shard):
                if isinstance(entry.command, c.Boundary):
                    boundaries.append((entry.at, entry.result))
                elif isinstance(entry.command, c.Batch):
                    ids = entry.command.inserts()
                    for key, answer in zip(
                        zip(_digests(ids.digests), ids.tags.tolist(), strict=True), entry.result[0], strict=True
                    ):
                        if answer == Answer.COMMITTED:
                            owners[key] = min(entry.at, owners.get(key, entry.at))
        for each in self.looked_up:
            name = each.digest.hex()[:8]
            if each.answer == Answer.PRESENT and owners.get((each.digest, each.tag), NEVER) > each.answered:
                raise Violation(f"a look-up says that {name} is owned by {each.tag:x}, which it never was by then")
            if each.answer == Answer.BELOW_BOUNDARY and not any(
                at <= each.answered and each.time < boundary for at, boundary in boundaries
            ):
                raise Violation(f"a look-up says that {name} is below a boundary that nobody had set by then")

    def _check_boundary(self, shard: int) -> None:
        before: int | None = None
        for entry in self.log(shard):
            if isinstance(entry.command, c.Boundary):
                if before is not None and entry.result < before:
                    raise Violation(
                        f"shard {shard}, entry {entry.index}: the boundary moves back from {before} to {entry.result}"
                    )
                before = entry.result

    def _check_one_owner(self, again: Counter[bytes]) -> None:
        """The promise, from the answers alone."""
        owners: dict[bytes, set[int]] = defaultdict(set)
        for each in self.asked:
            if each.what == "insert" and each.answer in (Answer.COMMITTED, Answer.DONE):
                owners[each.digest].add(each.token)
        for digest, tokens in owners.items():
            if len(tokens) > 1 + again[digest]:
                raise Violation(f"id {digest.hex()[:8]} was acknowledged to tokens {sorted(tokens)}")
        for each in self.asked:
            own = owners.get(each.digest, set())
            if each.answer == Answer.TAKEN and not again[each.digest] and own and each.owner not in own:
                raise Violation(f"id {each.digest.hex()[:8]} is {own}'s, and said to be taken by {each.owner}")

    def _check_answer(self, each: Asked, given: Sequence[tuple[float, int]]) -> None:
        if each.answer in (Answer.UNKNOWN, Answer.TOO_NEW):
            return
        if each.answer in (Answer.BELOW_BOUNDARY, Answer.NO_OP) and any(
            at <= each.answered for at in self._removals()
        ):
            return  # it may be of a shard that was removed, and has no log
        if not any(each.invoked <= at <= each.answered and answer == each.answer for at, answer in given):
            raise Violation(
                f"{each.what} of {each.digest.hex()[:8]} under token {each.token} was answered {each.answer} between "
                f"{each.invoked:.3f} and {each.answered:.3f}, the log gave {[(round(t, 3), a) for t, a in given]}"
            )

    def _removals(self) -> Iterator[float]:
        """When shards were removed."""
        for entry in self.logs[CONFIG_GROUP].values():
            if isinstance(entry.command, c.Drop) and not entry.result:
                yield entry.at

    def _check_too_new(self, given: Given) -> None:
        """It says that this call did not insert the id and will not: it must not have any effect.

        An earlier call of the same row with unknown outcome may still register it at any time, which is why joiners
        do not believe TOO_NEW then (`joiner.core`); so only rows without one are judged.
        """
        refused = {
            (each.digest, each.token, each.generation, each.invoked): each
            for each in self.asked
            if each.what == "insert" and each.answer == Answer.TOO_NEW
        }
        for key, begun in self.begun.items():
            for at, invoked in enumerate(begun):
                each = refused.get((*key, invoked))
                if each is None:
                    break
                until = each.answered if at + 1 < len(begun) else NEVER
                if any(invoked <= t <= until and answer == Answer.COMMITTED for t, answer in given["insert", *key]):
                    name = each.digest.hex()[:8]
                    raise Violation(f"id {name} was said to be too new, and registered by the same call")

    def _check_openings(self) -> None:
        newest: dict[str, tuple[int, bytes]] = {}
        retired: set[str] = set()
        given: dict[bytes, list[tuple[float, int]]] = defaultdict(list)
        last_number = 0
        for entry in self.log(CONFIG_GROUP):
            if isinstance(entry.command, c.RetireSlot) and entry.command.slot in newest:
                retired.add(entry.command.slot)
            if not isinstance(entry.command, c.OpenSlot):
                continue
            slot, opened = entry.command.slot, entry.result
            number, nonce = newest.get(slot, (0, b""))
            if slot in retired:
                expected = 0
            elif nonce == entry.command.nonce:
                expected = number
            elif entry.command.last == number:
                expected = last_number = last_number + 1
                newest[slot] = (expected, entry.command.nonce)
            else:
                expected = 0
            if opened.incarnation != expected:
                raise Violation(f"slot {slot} was opened as {opened.incarnation} where {expected} was due")
            given[entry.command.nonce].append((entry.at, opened.incarnation))
        holders: dict[int, bytes] = {}
        for each in self.openings:
            number = each.opened.incarnation
            if (number and holders.setdefault(number, each.nonce) != each.nonce) or not any(
                each.invoked <= at <= each.answered and answer == number for at, answer in given[each.nonce]
            ):
                raise Violation(f"slot {each.slot} heard {each.opened}, which no entry gave it then")


class ShardModel:
    """The protocol's table and rule 16, one id after the other."""

    def __init__(self, number: int, bucket_bits: int) -> None:
        self.number = number
        self._bucket_bits = bucket_bits
        self.entries: dict[bytes, tuple[str, int, int, int]] = {}  # state, token, generation, time
        self.boundary = -(2**63)
        self.slots: dict[int, str] = {}
        self.newest: dict[str, int] = {}
        self.fenced: set[str] = set()
        # How often an id was collected: with a later event time it may be entered again.
        self.forgotten: Counter[bytes] = Counter()
        self.config: Config | None = None
        self.pending: tuple[int, Config] | None = None
        self.latest = -(2**63)
        self.decided = self.active = self.refused = 0
        self.closed = False

    def apply(self, entry: Applied) -> list[tuple[str, bytes, int, int, int]]:
        """(what, digest, token, generation, answer) of each row. Raises Violation where the replicas differ."""
        match command := entry.command:
            case c.Batch():
                inserts = [(*row, self._insert(*row, command.config)) for row in _insert_rows(command)]
                clears = [(*row, self._clear(*row, command.config)) for row in _clear_rows(command)]
                self._same(entry, [row[-1] for row in inserts], entry.result[0])
                self._same(entry, [row[-1] for row in clears], entry.result[3])
                out = [("insert", digest, token, gen, answer) for _, digest, _, token, gen, answer in inserts]
                return out + [("clear", digest, token, 0, answer) for digest, _, token, answer in clears]
            case c.Reopen():
                rows = [(row[0], row[2], row[3], self._reopen(*row, command)) for row in _reopen_rows(command)]
                self._same(entry, [row[-1] for row in rows], entry.result)
                return [("reopen", *row) for row in rows]
            case c.Boundary():
                self.latest = max(self.latest, command.time_ns)
                self._collect(command.time_ns)
                self._same(entry, self.boundary, entry.result)
            case c.Announce():
                self._hears(command.slot, *command.incarnations)
            case c.Seed():
                for slot, _, newest, retired in command.slots:
                    self._hears(slot, newest)
                    self.fenced |= {slot} if retired else set()
            case c.Fence():
                self.fenced.add(command.slot)
            case c.Configure() if self.config is None:
                self.config = [(each.start_ns, each.shards) for each in command.ranges]
                self.decided, self.active = command.decided, command.config
            case c.Prepare():
                self._same(entry, self._prepare(command), not entry.result)
            case c.Activate():
                if self.pending is not None and self.pending[0] == command.config > self.decided:
                    self.config, self.decided, self.pending = self.pending[1], command.config, None
                    self.active = command.config
            case c.Abort():
                if self.config is not None and command.config > self.decided:
                    self.decided, self.pending = command.config, None
            case c.Close():
                if not entry.result and (self.entries or self.boundary < self._until()):
                    raise Violation(f"shard {self.number} was closed with {len(self.entries)} ids")
                self.closed |= not entry.result
            case c.Configure() | c.CheckState() | c.Barrier():
                pass
            case _:
                raise Violation(f"shard {self.number}, entry {entry.index}: nobody asked for {command}")
        return []

    def _hears(self, slot: str, *incarnations: int) -> None:
        self.slots |= {each: slot for each in incarnations if each}
        self.newest[slot] = max(self.newest.get(slot, 0), *incarnations)

    def _same(self, entry: Applied, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            raise Violation(f"shard {self.number}, entry {entry.index}: the replicas say {theirs}, the model {ours}")

    # -- ids -----------------------------------------------------------------------------------------------------
    def _insert(self, caller: int, digest: bytes, time: int, token: int, generation: int, by: int) -> int:
        """``by``: the config by which no other shard held the id."""
        slot = self.slots.get(caller)
        if slot is None:
            return UNKNOWN_CALLER
        if slot in self.fenced:
            return Answer.FENCED
        if caller != self.newest[slot]:
            return Answer.STALE_INCARNATION
        if self.slots.get(incarnation_of(token)) != slot:
            return UNKNOWN_CALLER
        if digest not in self.entries and not self._takes(digest, time, by):
            return WRONG_SHARD
        state, owner, raised, first = self.entries.get(digest, ("absent", 0, 0, time))
        if state == "owned":
            return Answer.COMMITTED if owner == token else Answer.TAKEN
        if state == "cleared":
            return Answer.DONE if owner == token else Answer.TAKEN
        if state == "reopened" and raised != generation:
            return Answer.TAKEN
        if state == "absent" and time < self.boundary:
            return Answer.BELOW_BOUNDARY
        self.entries[digest] = ("owned", token, generation, first)
        self.latest = max(self.latest, first)
        return Answer.COMMITTED

    def _clear(self, digest: bytes, time: int, token: int, by: int) -> int:
        if digest not in self.entries and not (self._own(digest) and by in (0, self.active)):
            return WRONG_SHARD
        state, owner, generation, first = self.entries.get(digest, ("absent", 0, 0, time))
        if state == "cleared" or (state == "owned" and owner == token):
            self.entries[digest] = ("cleared", owner, generation, first)
            return Answer.CLEARED
        return Answer.NO_OP if state == "absent" and time < self.boundary else Answer.REFUSED

    def _reopen(self, digest: bytes, time: int, token: int, generation: int, command: c.Reopen) -> int:
        if digest not in self.entries and (self.closed or not self._takes(digest, time, command.config)):
            return WRONG_SHARD
        state, owner, raised, first = self.entries.get(digest, ("absent", 0, 0, time))
        collected = state == "absent" and time < self.boundary and command.operator
        owned = state == "owned" and owner == token
        cleared = state == "cleared" and command.operator and (owner, raised) == (token, generation)
        kept = command.retired and self.slots.get(incarnation_of(token)) not in self.fenced
        if kept or not (collected or owned or cleared):
            return Answer.NO_OP
        self.entries[digest] = ("reopened", 0, (generation if collected else raised) + 1, first)
        return Answer.REOPENED

    def _collect(self, time_ns: int) -> None:
        if time_ns <= self.boundary:
            return
        self.boundary = time_ns
        for digest, (state, _, _, time) in list(self.entries.items()):
            if state == "cleared" and (time >> self._bucket_bits) + 1 << self._bucket_bits <= time_ns:
                del self.entries[digest]
                self.forgotten[digest] += 1

    # -- rule 16 -------------------------------------------------------------------------------------------------
    def _prepare(self, command: c.Prepare) -> bool:
        if self.config is None:
            return False
        if self.pending is not None:
            return self.pending[0] == command.config
        if command.config != self.decided + 1:
            return False
        if self.latest >= command.starts_ns or self.refused == command.config:
            self.refused = command.config
            return False
        self.pending = command.config, [*self.config, (command.starts_ns, command.shards)]
        return True

    def _until(self) -> int:
        assert self.config is not None
        ends = [start for start, _ in self.config[1:]] + [END]
        return max(end for end, (_, shards) in zip(ends, self.config, strict=True) if self.number in shards)

    def _own(self, digest: bytes) -> bool:
        return self.config is not None and owner_of(self.config[-1][1], digest) == self.number

    def _takes(self, digest: bytes, time: int, by: int) -> bool:
        if self.config is None or not self._own(digest):
            return False
        if self.pending is not None:
            start, shards = self.pending[1][-1]
            if time >= start and owner_of(shards, digest) != self.number:
                return False
        return by == self.active or all(owner_of(shards, digest) == self.number for _, shards in self.config)


def _digests(column: bytes) -> list[bytes]:
    return [column[at : at + DIGEST_BYTES] for at in range(0, len(column), DIGEST_BYTES)]


def _generations(ids: Ids) -> list[int]:
    return [0] * len(ids) if ids.generations is None else ids.generations.tolist()


def _insert_rows(batch: c.Batch) -> Iterator[tuple[int, bytes, int, int, int]]:
    callers = [caller for caller, count in batch.callers for _ in range(count)]
    ids = batch.inserts()
    return zip(
        callers, _digests(ids.digests), ids.times.tolist(), ids.tokens.tolist(), _generations(ids), strict=True
    )


def _clear_rows(batch: c.Batch) -> Iterator[tuple[bytes, int, int]]:
    ids = batch.clears()
    return zip(_digests(ids.digests), ids.times.tolist(), ids.tokens.tolist(), strict=True)


def _reopen_rows(command: c.Reopen) -> Iterator[tuple[bytes, int, int, int]]:
    ids = command.ids()
    return zip(_digests(ids.digests), ids.times.tolist(), ids.tokens.tolist(), _generations(ids), strict=True)
