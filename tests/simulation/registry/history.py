"""What was asked, answered and applied in a schedule of the registry, and whether the one explains the other.

The log of each group, in the order of its entries, is the history's witness: an answer is right if some entry that
carried the request gave it, at a time between the request and the answer (so the history is linearisable, as entries
are applied in order), and if a plain model of the protocol's table gives the same answers to the log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from photon.idregistry.api import DIGEST_BYTES, Answer, Opened, incarnation_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.id_table import BUCKET_BITS
from photon.idregistry.core.state_machine import UNKNOWN_CALLER, BatchAnswers
from tests.simulation.world.cluster import Violation

CONFIG_GROUP = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """One row of a client's call that was answered."""

    what: str  # insert or clear
    digest: bytes
    token: int
    generation: int
    answer: int
    owner: int
    """Token of the owner, where the answer names one."""
    invoked: float
    answered: float


@dataclass(frozen=True, slots=True)
class LookedUp:
    """One row of a look-up that was answered, at some replica."""

    digest: bytes
    time: int
    answer: int
    tag: int
    """Names the owner's token, where there is an owner."""
    invoked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Opening:
    """An answered open_slot."""

    slot: str
    last: int
    nonce: bytes
    opened: Opened
    invoked: float
    answered: float


@dataclass(frozen=True, slots=True)
class Applied:
    """An entry of a group's log, and what it gave, when it was applied first."""

    index: int
    command: Any
    result: Any
    at: float


def tag_of(token: int) -> int:
    """What clients register beside a token: it names it, so that answers without tokens can be judged."""
    return (token >> 40 << 16 | (token & 0xFFFF)) & 0xFFFFFFFF


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


@dataclass
class History:
    """Everything that the checks need."""

    asked: list[Asked] = field(default_factory=list)
    begun: dict[tuple[bytes, int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """When the inserts of an id, token and generation were sent, answered or not (their process may have died)."""
    openings: list[Opening] = field(default_factory=list)
    looked_up: list[LookedUp] = field(default_factory=list)
    logs: dict[int, dict[int, Applied]] = field(default_factory=lambda: defaultdict(dict))
    forgotten: Counter[bytes] = field(default_factory=Counter)
    """How often an id was collected, in any shard."""

    def applied(self, name: str, group: int, index: int, command: bytes, result: Any, now: float) -> None:
        """A replica applied an entry; another one that did before must have had the same entry and result."""
        log = self.logs[group]
        known = log.get(index)
        if known is None:
            decoded = (c.decode_config if group == CONFIG_GROUP else c.decode_shard)(command)
            log[index] = Applied(index, decoded, plain(result), now)
        elif c.encode(known.command) != command:
            raise Violation(f"group {group}, entry {index}: {name} applied another command than another replica")
        elif plain(result) != known.result:
            raise Violation(
                f"group {group}, entry {index}: {name} came to {plain(result)}, another to {known.result}"
            )

    def log(self, group: int) -> list[Applied]:
        """In order."""
        return [entry for _, entry in sorted(self.logs[group].items())]

    @property
    def shards(self) -> list[int]:
        return sorted(group for group in self.logs if group != CONFIG_GROUP)

    # --- checks -----------------------------------------------------------------------------------------------

    def model(self, shard: int) -> ShardModel:
        """Of a shard, from its first entry on."""
        return ShardModel(shard)

    def check(self) -> None:
        """Raises Violation."""
        given: dict[tuple[str, bytes, int, int], list[tuple[float, int]]] = defaultdict(list)
        reopened: dict[bytes, int] = defaultdict(int)
        for shard in self.shards:
            self._check_boundary(shard)
            model = self.model(shard)
            for entry in self.log(shard):
                for what, digest, token, generation, answer in model.apply(entry):
                    given[what, digest, token, generation].append((entry.at, answer))
                    reopened[digest] += what == "reopen" and answer == Answer.REOPENED
            self.forgotten.update(model.forgotten)
        self._check_one_owner(reopened)
        self._check_too_new(given)
        for each in self.asked:
            self._check_answer(each, given[each.what, each.digest, each.token, each.generation])
        self._check_openings()
        self._check_look_ups(given)

    def _check_look_ups(self, given: Mapping[tuple[str, bytes, int, int], Sequence[tuple[float, int]]]) -> None:
        """A hint may be old, but never of what was not: an owner that was one by then, a boundary that was passed."""
        owners: dict[tuple[bytes, int], float] = {}
        for (what, digest, token, _), answers in given.items():
            for at, answer in answers:
                if what == "insert" and answer == Answer.COMMITTED:
                    key = (digest, tag_of(token))
                    owners[key] = min(at, owners.get(key, at))
        boundaries = [
            (entry.at, entry.result)
            for shard in self.shards
            for entry in self.log(shard)
            if isinstance(entry.command, c.Boundary)
        ]
        for each in self.looked_up:
            name = each.digest.hex()[:8]
            if each.answer == Answer.PRESENT and owners.get((each.digest, each.tag), float("inf")) > each.answered:
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

    def _check_one_owner(self, reopened: dict[bytes, int]) -> None:
        """The promise, from the answers alone."""
        owners: dict[bytes, set[int]] = defaultdict(set)
        for each in self.asked:
            if each.what == "insert" and each.answer in (Answer.COMMITTED, Answer.DONE):
                owners[each.digest].add(each.token)
        for digest, tokens in owners.items():
            if len(tokens) > 1 + reopened[digest] + self.forgotten[digest]:
                raise Violation(f"id {digest.hex()[:8]} was acknowledged to tokens {sorted(tokens)}")
        for each in self.asked:
            own = owners.get(each.digest, set())
            free = reopened[each.digest] or self.forgotten[each.digest]
            if each.answer == Answer.TAKEN and not free and own and each.owner not in own:
                raise Violation(f"id {each.digest.hex()[:8]} is {own}'s, and said to be taken by {each.owner}")

    def _check_answer(self, each: Asked, given: Sequence[tuple[float, int]]) -> None:
        if each.answer in (Answer.UNKNOWN, Answer.TOO_NEW):
            return
        if not any(each.invoked <= at <= each.answered and answer == each.answer for at, answer in given):
            raise Violation(
                f"{each.what} of {each.digest.hex()[:8]} under token {each.token} was answered {each.answer} between "
                f"{each.invoked:.3f} and {each.answered:.3f}, the log gave {[(round(t, 3), a) for t, a in given]}"
            )

    def _check_too_new(self, given: Mapping[tuple[str, bytes, int, int], Sequence[tuple[float, int]]]) -> None:
        """It says that this call did not insert the id and will not: nothing may have come of it.

        An earlier call of the same row whose outcome stayed unknown may still register it at any time, which is why
        joiners do not believe TOO_NEW then (`joiner.core`); so only rows without one are judged.
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
                until = each.answered if at + 1 < len(begun) else float("inf")
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
    """The protocol's table, one id after the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[bytes, tuple[str, int, int, int]] = {}  # state, token, generation, time
        self.boundary = -(2**63)
        self.slots: dict[int, str] = {}
        self.newest: dict[str, int] = {}
        self.fenced: set[str] = set()
        self.forgotten: Counter[bytes] = Counter()
        """How often an id was collected: with a later event time it may be entered again."""

    def apply(self, entry: Applied) -> list[tuple[str, bytes, int, int, int]]:
        """(what, digest, token, generation, answer) of each row. Raises Violation where the replicas differ."""
        command = entry.command
        if isinstance(command, c.Batch):
            inserts = [(*row, self._insert(*row, command.config)) for row in insert_rows(command)]
            clears = [(*row, self._clear(*row, command.config)) for row in _clear_rows(command)]
            self._same(entry, [row[-1] for row in inserts], entry.result[0])
            self._same(entry, [row[-1] for row in clears], entry.result[3])
            out = [("insert", digest, token, gen, answer) for _, digest, _, token, gen, answer in inserts]
            return out + [("clear", digest, token, 0, answer) for digest, _, token, answer in clears]
        if isinstance(command, c.Reopen):
            rows = [(row[0], row[2], row[3], self._reopen(*row, command.operator)) for row in _reopen_rows(command)]
            self._same(entry, [row[-1] for row in rows], entry.result)
            return [("reopen", *row) for row in rows]
        if isinstance(command, c.Boundary):
            self._collect(command.time_ns)
            self._same(entry, self.boundary, entry.result)
        elif isinstance(command, c.Announce):
            self._hears(command.slot, *command.incarnations)
        elif isinstance(command, c.Seed):
            for slot, _, newest, retired in command.slots:
                self._hears(slot, newest)
                self.fenced |= {slot} if retired else set()
        elif isinstance(command, c.Fence):
            self.fenced.add(command.slot)
        elif not isinstance(command, c.Configure | c.CheckState):
            raise Violation(f"shard {self.number}, entry {entry.index}: a command that nobody asked for: {command}")
        return []

    def _hears(self, slot: str, *incarnations: int) -> None:
        self.slots |= {each: slot for each in incarnations if each}
        self.newest[slot] = max(self.newest.get(slot, 0), *incarnations)

    def _same(self, entry: Applied, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            raise Violation(f"shard {self.number}, entry {entry.index}: the replicas say {theirs}, the model {ours}")

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
        return Answer.COMMITTED

    def _clear(self, digest: bytes, time: int, token: int, by: int) -> int:
        state, owner, generation, first = self.entries.get(digest, ("absent", 0, 0, time))
        if state == "cleared" or (state == "owned" and owner == token):
            self.entries[digest] = ("cleared", owner, generation, first)
            return Answer.CLEARED
        return Answer.NO_OP if state == "absent" and time < self.boundary else Answer.REFUSED

    def _reopen(self, digest: bytes, time: int, token: int, generation: int, operator: bool) -> int:
        state, owner, raised, first = self.entries.get(digest, ("absent", 0, 0, time))
        collected = state == "absent" and time < self.boundary and operator
        owned = state == "owned" and owner == token
        cleared = state == "cleared" and operator and (owner, raised) == (token, generation)
        if not (collected or owned or cleared):
            return Answer.NO_OP
        self.entries[digest] = ("reopened", 0, (generation if collected else raised) + 1, first)
        return Answer.REOPENED

    def _collect(self, time_ns: int) -> None:
        if time_ns <= self.boundary:
            return
        self.boundary = time_ns
        for digest, (state, _, _, time) in list(self.entries.items()):
            if state == "cleared" and (time >> BUCKET_BITS) + 1 << BUCKET_BITS <= time_ns:
                del self.entries[digest]
                self.forgotten[digest] += 1


def _digests(column: bytes) -> list[bytes]:
    return [column[at : at + DIGEST_BYTES] for at in range(0, len(column), DIGEST_BYTES)]


def insert_rows(batch: c.Batch) -> Iterator[tuple[int, bytes, int, int, int]]:
    callers = [caller for caller, count in batch.callers for _ in range(count)]
    ids = batch.inserts()
    generations = [0] * len(ids) if ids.generations is None else ids.generations.tolist()
    return zip(callers, _digests(ids.digests), ids.times.tolist(), ids.tokens.tolist(), generations, strict=True)


def _clear_rows(batch: c.Batch) -> Iterator[tuple[bytes, int, int]]:
    ids = batch.clears()
    return zip(_digests(ids.digests), ids.times.tolist(), ids.tokens.tolist(), strict=True)


def _reopen_rows(command: c.Reopen) -> Iterator[tuple[bytes, int, int, int]]:
    ids = command.ids()
    generations = [] if ids.generations is None else ids.generations.tolist()
    return zip(_digests(ids.digests), ids.times.tolist(), ids.tokens.tolist(), generations, strict=True)
