"""The config group (group 0): slots with their incarnations and witnesses, datacentres, shard config, id rules.

Invariants: an incarnation number is given out once in the deployment; a slot's newest incarnation is replaced only by
an open that named it (compare-and-set); the shard config comes from the first set-up and later changes
(``shard_changes``), and a join's id rule from the first set-up that named the join.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from photon.config.versioned_file import other_version
from photon.idregistry.api import INCARNATION_BITS, Opened
from photon.idregistry.core import commands as c
from photon.idregistry.core import shard_changes
from photon.idregistry.core.marked_states import Marked, Marks
from photon.idregistry.core.reshard_plan import SlotSeed
from photon.idregistry.core.samples import with_others
from photon.idregistry.core.shard_snapshot import SnapshotError, slot_items
from photon.idregistry.core.sharding import shards_in
from photon.idregistry.core.state_machine import MAX_DATACENTRES, MAX_SLOTS
from photon.idregistry.core.verdict_rules import VerdictRules
from photon.idregistry.witness import KnownSlot, Witness, Witnessed, refusal

MAGIC = "PHOTCONF"
VERSION = 3
INCARNATION_MAX = (1 << INCARNATION_BITS) - 1
_SLOTS_PER_CHUNK = 256


@dataclass(slots=True)
class ConfigSlot:
    datacentre: str
    address: str
    incarnations: list[int] = field(default_factory=list)  # ascending; the last is the newest
    nonce: bytes = b""  # nonce of the open that created the newest
    retired: bool = False
    witness: Witness = ()

    @property
    def newest(self) -> int:
        return self.incarnations[-1] if self.incarnations else 0


@dataclass(frozen=True, slots=True)
class Founding:
    """The first entries for a new shard, all read at one moment: slots, then the shard's configuration."""

    configure: c.Configure
    slots: list[SlotSeed]


class ConfigMachine:
    """The state machine of group 0. ``apply`` runs on the driver's thread; other threads read, under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: dict[str, ConfigSlot] = {}
        self._holders: dict[int, str] = {}  # incarnation -> slot
        self._last_incarnation = 0
        # The shards and their changes. This and ``id_rules`` are replaced, never modified: other threads read them.
        self.changes = shard_changes.Changes()
        # Incarnations above the first number, up to the second, may have been given out since the backup.
        self._restored = (0, 0)
        self._applied = 0
        self.marks = Marks()
        # Join -> hash of the rule that derives id, key and time from its records.
        self.id_rules: dict[str, bytes] = {}
        self._verdict_rules: dict[str, VerdictRules] = {}  # by join
        self._samples: dict[str, tuple[c.Sample, ...]] = {}  # by join

    # -- StateMachine -------------------------------------------------------------------------------------------
    def apply(self, index: int, command: bytes) -> Opened | Witnessed | int | str:
        """Applies a command. OpenSlot -> Opened; ExtendWitness -> Witnessed; others -> refusal reason, or ""."""
        decoded = c.decode_config(command)
        with self._lock:
            self._applied = index
            match decoded:
                case c.Barrier():
                    return self._keep_marked(decoded.mark)
                case c.OpenSlot():
                    return self._open(decoded)
                case c.RetireSlot():
                    return self._retire(decoded.slot)
                case c.ExtendWitness():
                    return self._extend_witness(decoded)
                case c.SetUp():
                    return self._set_up(decoded)
                case c.JudgeBy():
                    return self._judge_by(decoded)
                case c.KeepSamples():
                    return self._keep_samples(decoded)
                case c.Intend() | c.Decide() | c.Drop():
                    self.changes, reason = shard_changes.change(self.changes, decoded)
                    return reason

    def snapshot(self) -> Iterable[bytes]:
        with self._lock:
            return self._chunks()

    def _chunks(self) -> list[bytes]:
        rules = dict(sorted(self.id_rules.items()))
        head = _Head(MAGIC, VERSION, self._last_incarnation, rules, self.changes, self._restored)
        judged = [_encode(_Judged(join, rules)) for join, rules in sorted(self._verdict_rules.items())]
        sampled = [_encode(_Sampled(join, samples)) for join, samples in sorted(self._samples.items())]
        end = _encode(_End(len(self._slots)))
        return [_encode(head), *self._slot_chunks(), *self._witness_chunks(), *judged, *sampled, end]

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replaces the state with a snapshot's. Raises SnapshotError."""
        head, slots, judged, samples = _read(chunks)
        with self._lock:
            self._slots, self._verdict_rules, self._samples = slots, judged, samples
            self._holders = {number: name for name, slot in slots.items() for number in slot.incarnations}
            self._last_incarnation, self.id_rules = head.last_incarnation, head.id_rules
            self._restored = head.restored
            self.changes = head.changes

    # -- reads from other threads -------------------------------------------------------------------------------
    @property
    def ranges(self) -> tuple[c.Range, ...]:
        """The active shard config; empty before the first set-up."""
        return self.changes.ranges

    def founding(self, shard: int) -> Founding:
        with self._lock:
            known = self.changes
            slots = [(name, slot.datacentre, slot.newest, slot.retired) for name, slot in self._slots.items()]
            return Founding(c.Configure(shard, known.ranges, known.config, known.decided), slots)

    def retired(self) -> list[str]:
        with self._lock:
            return sorted(name for name, slot in self._slots.items() if slot.retired)

    def datacentre_of(self, slot: str = "", incarnation: int = 0) -> str:
        """Returns the datacentre of a slot, given by name or by one of its incarnations; empty if unknown here."""
        with self._lock:
            known = self._slots.get(slot or self._holders.get(incarnation, ""))
            return known.datacentre if known is not None else ""

    def witnessed(self, slot: str) -> Witnessed:
        """Returns a slot's witness, as of the last entry applied here."""
        with self._lock:
            known = self._slots.get(slot)
            return Witnessed(known.newest, known.witness, retired=known.retired) if known else Witnessed(0, ())

    def verdict_rules(self, join: str) -> VerdictRules:
        """Returns a join's verdict rules, as of the last entry applied here."""
        with self._lock:
            return self._verdict_rules.get(join, VerdictRules())

    def samples(self, join: str) -> tuple[c.Sample, ...]:
        """Returns a join's samples, as of the last entry applied here."""
        with self._lock:
            return self._samples.get(join, ())

    def slots_after(self, name: str, limit: int) -> tuple[list[KnownSlot], bool]:
        """Returns up to ``limit`` slots after ``name``, by name, and True if there are more."""
        with self._lock:
            after = sorted(each for each in self._slots if each > name)
            known = [(each, self._slots[each]) for each in after[:limit]]
            return [
                KnownSlot(each, s.datacentre, s.address, s.newest, len(s.incarnations), s.retired, s.witness)
                for each, s in known
            ], len(after) > limit

    def incarnations(self) -> dict[str, list[int]]:
        """Returns slot -> all its incarnations, ascending."""
        with self._lock:
            return {name: list(slot.incarnations) for name, slot in self._slots.items()}

    def lacks(self, setup: c.SetUp) -> bool:
        """True if this set-up contains something that the deployment does not have yet."""
        return not self.changes.ranges or not setup.id_rules.keys() <= self.id_rules.keys()

    def conflict(self, setup: c.SetUp) -> str:
        """Returns the reason why a replica with this set-up must not serve this deployment; empty if it may."""
        with self._lock:
            return self._conflict(setup)

    def announcement(self, slot: str, incarnations: Iterable[int]) -> c.Announce | str | None:
        """Returns a command that tells a shard these incarnations of a slot, and its newest one.

        A string says why they are refused; ``None`` means that this replica does not know all of them yet.
        """
        with self._lock:
            wanted = set(incarnations)
            for incarnation in sorted(wanted):
                holder = self._holders.get(incarnation) or (slot if self._may_be_newer(incarnation) else None)
                if holder is None:
                    return None
                if holder != slot:
                    return f"incarnation {incarnation} belongs to slot {holder}, not to {slot}"
            known = self._slots.get(slot)
            if known is None:  # opened after the backup, but not since the restore
                return None
            wanted.add(known.newest)
            if len(wanted) > c.MAX_ANNOUNCED:
                return f"slot {slot} has tokens of {len(wanted)} incarnations; at most {c.MAX_ANNOUNCED} are allowed"
            return c.Announce(slot, known.datacentre, sorted(wanted), known.address)

    # -- commands -----------------------------------------------------------------------------------------------
    def _open(self, command: c.OpenSlot) -> Opened:
        slot = self._slots.get(command.slot)
        newest = slot.newest if slot else 0
        refused = self._refusal(command, slot, newest)
        if refused:
            return Opened(0, newest, refused)
        if slot is not None and newest and slot.nonce == command.nonce:
            return Opened(newest, newest, witness=slot.witness)  # the same process asks again
        if slot is None:
            slot = self._slots[command.slot] = ConfigSlot(command.datacentre, command.address)
        if command.last > newest:  # it was given out after the backup
            slot.incarnations.append(command.last)
            self._holders[command.last] = command.slot
        self._last_incarnation += 1
        slot.incarnations.append(self._last_incarnation)
        self._holders[self._last_incarnation] = command.slot
        slot.nonce, slot.address = command.nonce, command.address
        return Opened(self._last_incarnation, self._last_incarnation, witness=slot.witness)

    def _refusal(self, command: c.OpenSlot, slot: ConfigSlot | None, newest: int) -> str:
        name = command.slot
        if slot is not None and slot.retired:
            return f"slot {name} was retired: use another name and an empty directory"
        if slot is not None and slot.datacentre != command.datacentre:
            return f"slot {name} belongs to datacentre {slot.datacentre}, not {command.datacentre}: use another name"
        if slot is not None and newest and slot.nonce == command.nonce:
            return ""
        since = command.last > newest and self._may_be_newer(command.last)
        if command.last != newest and not (since and self._holders.get(command.last, name) == name):
            if not newest:
                return (
                    f"slot {name} has incarnation {command.last} in its directory, but this registry never opened it"
                )
            by = f" by {slot.address}" if slot is not None and slot.address else ""
            return (
                f"slot {name} was opened as incarnation {newest}{by}, but its directory has "
                f"{command.last or 'none'}: it may be a copy, or in use by another process. Restore the directory "
                "or retire the slot"
            )
        if self._last_incarnation >= INCARNATION_MAX:
            return f"all {INCARNATION_MAX} incarnations are used up"
        if slot is None and len(self._slots) >= MAX_SLOTS:
            return f"more than {MAX_SLOTS} slots"
        datacentres = {each.datacentre for each in self._slots.values()} if slot is None else set()
        if slot is None and command.datacentre not in datacentres and len(datacentres) >= MAX_DATACENTRES:
            return f"more than {MAX_DATACENTRES} datacentres"
        return ""

    def _may_be_newer(self, incarnation: int) -> bool:
        return self._restored[0] < incarnation <= self._restored[1]

    def begin_restored(self, gap: int) -> None:
        """Prepares for serving after ``restore`` from a backup.

        The next ``gap`` incarnations may have been given out since the backup, so none of them is given out again.
        Raises SnapshotError if fewer are left.
        """
        with self._lock:
            last = self._last_incarnation
            if last + gap >= INCARNATION_MAX:
                raise SnapshotError(f"config group: only {INCARNATION_MAX - last} incarnations are left, not {gap}")
            self._restored = (self._restored[0] or last, last + gap)
            self._last_incarnation = last + gap

    def _keep_marked(self, mark: bytes) -> int:
        if mark:
            self.marks.keep(Marked(mark, self._applied, self._chunks()))
        return self._applied

    def _retire(self, name: str) -> str:
        slot = self._slots.get(name)
        if slot is None:
            return f"there is no slot {name}"
        slot.retired = True
        return ""

    def _extend_witness(self, command: c.ExtendWitness) -> Witnessed:
        slot = self._slots.get(command.slot)
        if slot is None:
            return Witnessed(0, (), f"there is no slot {command.slot}")
        if slot.retired:
            return Witnessed(slot.newest, slot.witness, f"slot {command.slot} was retired", retired=True)
        reason = refusal(slot.witness, slot.newest, command.incarnation, command.end, command.to)
        if not reason:
            slot.witness = command.to
        return Witnessed(slot.newest, slot.witness, reason)

    def _set_up(self, command: c.SetUp) -> str:
        conflict = self._conflict(command)
        if conflict:
            return conflict
        if not self.changes.ranges:
            self.changes = shard_changes.set_up(command.ranges)
        self.id_rules = command.id_rules | self.id_rules
        return ""

    def _judge_by(self, command: c.JudgeBy) -> str:
        if unknown := self._unknown(command.join):
            return unknown
        known = self._verdict_rules.get(command.join, VerdictRules())
        self._verdict_rules[command.join] = known.announced(command.process, command.rule)
        return ""

    def _keep_samples(self, command: c.KeepSamples) -> str:
        if unknown := self._unknown(command.join):
            return unknown
        self._samples[command.join] = with_others(self._samples.get(command.join, ()), command.samples)
        return ""

    def _unknown(self, join: str) -> str:
        return "" if join in self.id_rules else f"the registry does not know join {join} yet"

    def _conflict(self, setup: c.SetUp) -> str:
        known = self.changes
        if known.ranges and not shard_changes.fits(known, setup.ranges):
            ours, theirs = len(known.named), len(shards_in(setup.ranges))
            has = "was set up with" if known.config == 1 else "has"
            return f"this registry {has} {ours} shards, but the configuration says {theirs}: set it to {ours}"
        for join, rule in sorted(setup.id_rules.items()):
            before = self.id_rules.get(join, rule)
            if before != rule:
                return (
                    f"this registry was filled with id rule {before.hex()[:16]} of join {join}, but the "
                    f"configuration's is {rule.hex()[:16]}: with another format, key or time for the same logs, "
                    "events would be counted twice. Restore the old settings or start with a new registry and output"
                )
        if len(self.id_rules | setup.id_rules) > c.MAX_JOINS:
            return f"this registry knows {len(self.id_rules)} joins; at most {c.MAX_JOINS} are allowed"
        return ""

    def _slot_chunks(self) -> Iterator[bytes]:
        slots = (
            ((name, s.datacentre, s.address, s.nonce, s.retired), s.incarnations) for name, s in self._slots.items()
        )
        for items in slot_items(slots, _SLOTS_PER_CHUNK):
            yield _encode(_Slots(items))

    def _witness_chunks(self) -> Iterator[bytes]:
        items = [(name, slot.witness) for name, slot in self._slots.items() if slot.witness]
        for start in range(0, len(items), _SLOTS_PER_CHUNK):
            yield _encode(_Witnesses(items[start : start + _SLOTS_PER_CHUNK]))


# -- snapshot chunks ------------------------------------------------------------------------------------------------
_Count = Annotated[int, msgspec.Meta(ge=0)]
_SlotItem = tuple[c.Name, c.Name, c.Text, bytes, bool, list[c.Incarnation]]


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k", tag="head"):
    magic: str
    version: int
    last_incarnation: _Count
    id_rules: c.IdRules
    changes: shard_changes.Changes
    restored: tuple[_Count, _Count]


class _Start(msgspec.Struct, frozen=True, tag_field="k", tag="head"):
    magic: str
    version: int


class _Slots(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k", tag="slots"):
    items: list[_SlotItem]


class _Witnesses(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k", tag="witnesses"):
    items: list[tuple[c.Name, Witness]]


class _Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k", tag="judged"):
    join: c.Name
    rules: VerdictRules


class _Sampled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k", tag="sampled"):
    join: c.Name
    samples: tuple[c.Sample, ...]


class _End(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="k", tag="end"):
    slots: _Count


_start = msgspec.msgpack.Decoder(_Start)
_decoder = msgspec.msgpack.Decoder(_Head | _Slots | _Witnesses | _Judged | _Sampled | _End)
_encode = msgspec.msgpack.Encoder().encode


def _check_start(start: _Start) -> None:
    if start.magic != MAGIC:
        raise SnapshotError("config snapshot: does not start with its head")
    if start.version != VERSION:
        raise SnapshotError(f"config snapshot: {other_version(start.version, VERSION)}")


def _read(
    chunks: Iterable[bytes],
) -> tuple[_Head, dict[str, ConfigSlot], dict[str, VerdictRules], dict[str, tuple[c.Sample, ...]]]:
    head: _Head | None = None
    slots: dict[str, ConfigSlot] = {}
    judged: dict[str, VerdictRules] = {}
    samples: dict[str, tuple[c.Sample, ...]] = {}
    ended = False
    for data in chunks:
        try:
            if head is None:
                _check_start(_start.decode(data))
            chunk = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SnapshotError(f"config snapshot: {error}") from None
        if head is None:
            if not isinstance(chunk, _Head):
                raise SnapshotError("config snapshot: does not start with its head")
            head = chunk
        elif isinstance(chunk, _Slots):
            for name, datacentre, address, nonce, retired, incarnations in chunk.items:
                slot = slots.setdefault(name, ConfigSlot(datacentre, address, [], nonce, retired))
                slot.incarnations.extend(incarnations)
        elif isinstance(chunk, _Witnesses):
            for name, witness in chunk.items:
                if name not in slots:
                    raise SnapshotError(f"config snapshot: has a witness of slot {name}, but not the slot")
                slots[name].witness = witness
        elif isinstance(chunk, _Judged):
            judged[chunk.join] = chunk.rules
        elif isinstance(chunk, _Sampled):
            samples[chunk.join] = chunk.samples
        elif isinstance(chunk, _End):
            ended = chunk.slots == len(slots)
    if head is None or not ended:
        raise SnapshotError("config snapshot: cut short")
    return head, slots, judged, samples
