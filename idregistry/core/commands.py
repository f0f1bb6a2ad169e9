"""Encodes and checks the commands that the Raft groups carry: a version byte, then one tagged MessagePack map.

Columns of n ids travel as bytes of fixed width, little-endian, as in registry.proto. ``decode`` accepts only output
of ``encode``: wrong versions, types, sizes and limits raise CommandError with one clear line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from photon.batch.ids import Ids, IdsError
from photon.config.versioned_file import other_version
from photon.idregistry.api import BATCH_BITS, DIGEST_BYTES, I64, INCARNATION_BITS, Kind
from photon.idregistry.witness import Witness

VERSION = 3
MAX_ENTRY_IDS = 16_384  # ids of one Raft entry, inserts and clears together: at most 720 KiB of columns
COMMAND_BYTES_MAX = 1 << 20  # the Raft driver's limit for one command
MAX_CLEARED = 262_144  # ids cleared by one watermark command, some tens of milliseconds; more are cleared in steps
MAX_NAME_BYTES = 512
MAX_ANNOUNCED = 4_096  # incarnations of one announcement
MAX_SHARDS = 4_096
MAX_RANGES = 1_024
MAX_RANGE_SHARDS = 131_072  # shards over all ranges of a config: it must fit into one entry
MAX_SEEDED = 1_024  # slots of one Seed
NONCE_BYTES_MAX = 64
ID_RULE_BYTES_MAX = 64
VERDICT_RULE_BYTES_MAX = 128
SHOWN_BYTES_MAX = 200  # of an id or key kept for display
MAX_SAMPLES = 64  # of one command
MAX_JOINS = 1_024
NO_TIME = -(2**63)  # no event time: nothing entered, or no boundary set
END_OF_TIME = 2**63 - 1  # end of a shard's last range while it takes new events
CONFIG_GROUP = 0  # number of the group that carries ConfigCommands; shards are groups 1 and up

_MIN_I64, _MAX_I64 = -(2**63), 2**63 - 1
_KINDS = bytes(Kind)

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_BYTES)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
Incarnation = Annotated[int, msgspec.Meta(ge=1, lt=1 << INCARNATION_BITS)]
TimeNs = Annotated[int, msgspec.Meta(ge=_MIN_I64, le=_MAX_I64)]
ShardNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARDS)]
ShardNumbers = Annotated[tuple[ShardNumber, ...], msgspec.Meta(min_length=1, max_length=MAX_SHARDS)]
# The first set-up is 1; each change takes the next number, activated or not.
ConfigNumber = Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]


class CommandError(ValueError):
    """Bytes that are not a valid registry command."""


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="c"):
    """Base of all commands."""


# -- shards ---------------------------------------------------------------------------------------------------------
class Batch(Command, frozen=True, tag="batch"):
    """Requests queued at a shard's leader, in one entry: inserts of several callers, then clears."""

    # (caller, number of its rows), in the order of the insert columns.
    callers: list[tuple[Incarnation, Annotated[int, msgspec.Meta(ge=1, le=MAX_ENTRY_IDS)]]] = []
    digests: bytes = b""
    times: bytes = b""
    tokens: bytes = b""
    kinds: bytes = b""
    tags: bytes = b""
    generations: bytes = b""  # empty: all 0
    clear_digests: bytes = b""
    clear_times: bytes = b""
    clear_tokens: bytes = b""
    # Number of the shard config under which no other shard held the ids; 0 if not checked yet.
    config: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0

    @staticmethod
    def of(callers: list[tuple[int, int]], inserts: Sequence[Ids], clears: Sequence[Ids], config: int) -> Batch:
        """Combines several requests, in order, into one batch."""
        cleared = {f"clear_{name}": column for name, column in Ids.encode_cleared(clears).items()}
        return Batch(callers=callers, **Ids.encode(inserts), **cleared, config=config)

    def inserts(self) -> Ids:
        """Decodes the ids to insert. Raises IdsError."""
        return Ids.decode(self.digests, self.times, self.tokens, self.kinds, self.tags, self.generations)

    def clears(self) -> Ids:
        """Decodes the ids to clear. Raises IdsError."""
        try:
            return Ids.decode(self.clear_digests, self.clear_times, self.clear_tokens)
        except IdsError as error:
            raise IdsError(f"clear_{error}") from None


class Announce(Command, frozen=True, tag="announce"):
    """Tells a shard a slot's incarnations; the highest is the slot's newest."""

    slot: Name
    datacentre: Name
    incarnations: Annotated[list[Incarnation], msgspec.Meta(min_length=1, max_length=MAX_ANNOUNCED)]
    address: Text = ""


class Fence(Command, frozen=True, tag="fence"):
    """Fences a retired slot: later inserts by its incarnations are answered FENCED (rule 14)."""

    slot: Name


class Boundary(Command, frozen=True, tag="boundary"):
    """Moves a shard's boundary, only forward: unknown ids with older event times are refused."""

    time_ns: TimeNs


class ClearBelow(Command, frozen=True, tag="below"):
    """Clears all ids owned by ``incarnation`` in batches below ``batch``, if count and XOR match (rule 8)."""

    incarnation: Incarnation
    batch: Annotated[int, msgspec.Meta(ge=0, le=1 << BATCH_BITS)]
    # ids read in the output that are not cleared yet
    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_CLEARED)]
    xor: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]  # XOR of their digests


class Reopen(Command, frozen=True, tag="reopen"):
    """Gives up ids whose entries are still as exported: owned ids; on an operator's order, others too (13-15)."""

    digests: bytes
    times: bytes
    tokens: bytes  # of the exported entry
    generations: bytes  # of the exported entry
    operator: bool = False
    retired: bool = False  # only ids whose owner's slot is fenced in this shard (rule 14)
    config: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0  # as in Batch

    def ids(self) -> Ids:
        """Decodes the ids to give up. Raises IdsError."""
        if self.digests and not self.generations:
            raise IdsError("generations: missing")
        return Ids.decode(self.digests, self.times, self.tokens, generations=self.generations)

    def take(self, rows: I64, config: int) -> Reopen:
        """Returns a command for the given rows. ``config``: the config under which no other shard held them."""
        return msgspec.structs.replace(
            self,
            digests=take(self.digests, DIGEST_BYTES, rows),
            times=take(self.times, 8, rows),
            tokens=take(self.tokens, 8, rows),
            generations=take(self.generations, 4, rows),
            config=config,
        )


class Barrier(Command, frozen=True, tag="barrier"):
    """Changes nothing. A replica that has applied it has applied every entry acknowledged before it.

    The config group uses it, too.
    """

    # If not empty, each replica keeps its state at this entry for an export.
    mark: Annotated[bytes, msgspec.Meta(max_length=16)] = b""


class CheckState(Command, frozen=True, tag="check"):
    """Each replica hashes its state at this entry, and compares the hash of an earlier check with the leader's."""

    # Version of the hash; hashes of different releases cannot be compared.
    form: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    index: Annotated[int, msgspec.Meta(ge=0)] = 0  # the entry of the leader's hash; 0 if none is given
    hash: Annotated[bytes, msgspec.Meta(max_length=64)] = b""


class OpenShard(Command, frozen=True, tag="open_shard"):
    """Opens a restored shard, on an operator's order. With a boundary, unknown older ids are refused."""

    boundary_ns: TimeNs | None = None


class RegisterAgain(Command, frozen=True, tag="again"):
    """Repeats registrations of a slot's ids that were made after the backup this shard was restored from."""

    slot: Name
    datacentre: Name
    digests: bytes
    times: bytes
    tokens: bytes
    kinds: bytes
    tags: bytes
    generations: bytes = b""  # empty: all 0
    cleared: bool = False  # True if their records are durable in an output
    config: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0  # as in Batch

    def ids(self) -> Ids:
        """Decodes the ids to register again. Raises IdsError."""
        return Ids.decode(self.digests, self.times, self.tokens, self.kinds, self.tags, self.generations)

    def take(self, rows: I64, config: int) -> RegisterAgain:
        """Returns a command for the given rows. ``config``: as in ``Reopen.take``."""
        return msgspec.structs.replace(self, **Ids.encode([self.ids().take(rows)]), config=config)


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Assigns event times in [``start_ns``, ``end_ns``) to ``shards``."""

    start_ns: TimeNs
    end_ns: TimeNs
    shards: Annotated[tuple[ShardNumber, ...], msgspec.Meta(min_length=1, max_length=MAX_SHARDS)]


# Hash of the rule that derives id, key and time from a join's records.
IdRule = Annotated[bytes, msgspec.Meta(min_length=1, max_length=ID_RULE_BYTES_MAX)]
IdRules = Annotated[dict[Name, IdRule], msgspec.Meta(max_length=MAX_JOINS)]  # join -> rule
# Digests of the settings that decide whether an event of a join is unmatched.
VerdictRule = Annotated[bytes, msgspec.Meta(min_length=1, max_length=VERDICT_RULE_BYTES_MAX)]
Ranges = Annotated[tuple[Range, ...], msgspec.Meta(min_length=1, max_length=MAX_RANGES)]
SIDES = ("foreign", "primary")
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Shown = Annotated[bytes, msgspec.Meta(max_length=SHOWN_BYTES_MAX)]


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The id, key and time that a join's rule gives one record (``samples``). Digests use the deployment's key."""

    side: Literal["foreign", "primary"]
    log: Text  # the log's name without its rotation suffix
    record: Digest  # of the log name, the file's header and the record
    key: Digest
    id: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES)] = b""  # empty: the record has none
    time_ns: TimeNs = 0
    key_shown: Shown = b""  # the beginning of the key; empty if records are redacted
    id_shown: Shown = b""


class Configure(Command, frozen=True, tag="configure"):
    """Opens a shard under its number, with the config group's active shard config. The Seeds come before it."""

    shard: ShardNumber
    ranges: Ranges
    config: ConfigNumber = 1  # number of this config
    decided: ConfigNumber = 1  # the last change that had ended


class Seed(Command, frozen=True, tag="seed"):
    """Tells a new shard the config group's slots, as (slot, datacentre, newest, retired)."""

    slots: Annotated[
        list[tuple[Name, Name, Annotated[int, msgspec.Meta(ge=0, lt=1 << INCARNATION_BITS)], bool]],
        msgspec.Meta(min_length=1, max_length=MAX_SEEDED),
    ]


class Prepare(Command, frozen=True, tag="prepare"):
    """Prepares a shard for a change, if every event time it ever entered is below ``starts_ns``. Afterwards it enters
    events from ``starts_ns`` on only if they belong to it under both configs.
    """

    config: ConfigNumber
    starts_ns: TimeNs
    shards: ShardNumbers


class Activate(Command, frozen=True, tag="activate"):
    """Makes the prepared config the shard's active one."""

    config: ConfigNumber


class Abort(Command, frozen=True, tag="abort"):
    """Tells a shard that a change was aborted, and so was any earlier one it does not know of."""

    config: ConfigNumber


class Close(Command, frozen=True, tag="close"):
    """Closes a shard to new ids for good, if it is empty and its boundary has passed the end of its last range."""


# -- config group ---------------------------------------------------------------------------------------------------
class SetUp(Command, frozen=True, tag="setup"):
    """Sets the shard config and each join's id rule. The first SetUp wins; for a rule, the first with the join."""

    ranges: Ranges
    id_rules: IdRules = {}


class OpenSlot(Command, frozen=True, tag="open"):
    """Opens a slot by compare-and-set of its newest incarnation (rule 6)."""

    slot: Name
    datacentre: Name
    last: Annotated[int, msgspec.Meta(ge=0, lt=1 << INCARNATION_BITS)]
    nonce: Annotated[bytes, msgspec.Meta(min_length=1, max_length=NONCE_BYTES_MAX)]
    address: Text = ""


class RetireSlot(Command, frozen=True, tag="retire"):
    """Records the intent to fence a slot in every shard (rule 14)."""

    slot: Name


class ExtendWitness(Command, frozen=True, tag="witness"):
    """Extends a slot's witness over newly durable output; must start exactly at the witness's end (rule 6)."""

    slot: Name
    incarnation: Incarnation
    end: Witness
    to: Witness


class JudgeBy(Command, frozen=True, tag="judge"):
    """Announces the verdict rule that a process uses (``verdict_rules``)."""

    join: Name
    process: Text  # empty if it has no lasting name
    rule: VerdictRule


class KeepSamples(Command, frozen=True, tag="samples"):
    """Stores samples of the logs that a process begins to read."""

    join: Name
    samples: Annotated[list[Sample], msgspec.Meta(min_length=1, max_length=MAX_SAMPLES)]


class Intend(Command, frozen=True, tag="intend"):
    """Starts a change of the shards, if it gets this number: events from ``starts_ns`` on belong to ``shards``."""

    config: ConfigNumber
    starts_ns: TimeNs
    shards: ShardNumbers


class Decide(Command, frozen=True, tag="decide"):
    """Ends the change under way; the first decision wins."""

    config: ConfigNumber
    activate: bool
    reason: Text = ""


class Drop(Command, frozen=True, tag="drop"):
    """Removes a closed shard; its number is not used again."""

    shard: ShardNumber


ShardCommand = (
    Batch
    | Barrier
    | OpenShard
    | CheckState
    | RegisterAgain
    | Announce
    | Fence
    | Boundary
    | ClearBelow
    | Reopen
    | Configure
    | Seed
    | Prepare
    | Activate
    | Abort
    | Close
)
ConfigCommand = (
    Barrier | SetUp | OpenSlot | RetireSlot | ExtendWitness | JudgeBy | KeepSamples | Intend | Decide | Drop
)

_encoder = msgspec.msgpack.Encoder()
_shard_decoder = msgspec.msgpack.Decoder(ShardCommand)
_config_decoder = msgspec.msgpack.Decoder(ConfigCommand)
_VERSION_BYTE = bytes([VERSION])


def encode(command: ShardCommand | ConfigCommand) -> bytes:
    """Encodes a command. Raises CommandError if it is too long for a Raft entry; ``decode`` checks the rest."""
    data = _VERSION_BYTE + _encoder.encode(command)
    if len(data) > COMMAND_BYTES_MAX:
        raise CommandError(f"command of {len(data)} bytes; at most {COMMAND_BYTES_MAX} fit into one entry")
    return data


def decode_shard(data: bytes) -> ShardCommand:
    """Decodes a shard group's command. Raises CommandError."""
    command: ShardCommand = _decode(data, _shard_decoder)
    if isinstance(command, Configure):
        check_ranges(command.ranges)
    try:
        if isinstance(command, Batch):
            n = len(command.digests) // DIGEST_BYTES
            if sum([count for _, count in command.callers]) != n:
                raise CommandError(f"callers: their rows do not add up to {n}")
            check_inserts(command.inserts())
            check_number(command.clears())
        elif isinstance(command, RegisterAgain):
            check_inserts(command.ids())
        elif isinstance(command, Reopen):
            check_number(command.ids())
    except IdsError as error:
        raise CommandError(str(error)) from None
    return command


def decode_config(data: bytes) -> ConfigCommand:
    """Decodes a config group's command. Raises CommandError."""
    command: ConfigCommand = _decode(data, _config_decoder)
    if isinstance(command, SetUp):
        check_ranges(command.ranges)
    return command


def check_ranges(ranges: tuple[Range, ...]) -> None:
    """Checks that ranges are in order, do not overlap, and name each of their shards once. Raises CommandError."""
    end = None
    if len(ranges) > MAX_RANGES or sum(len(each.shards) for each in ranges) > MAX_RANGE_SHARDS:
        raise CommandError(f"more than {MAX_RANGES} shard ranges, or more than {MAX_RANGE_SHARDS} shards in them")
    for each in ranges:
        if each.start_ns >= each.end_ns or (end is not None and each.start_ns < end):
            raise CommandError(f"shard range {each.start_ns}..{each.end_ns} is empty, overlaps or is out of order")
        if len(set(each.shards)) != len(each.shards):
            raise CommandError(f"shard range {each.start_ns}..{each.end_ns} names a shard twice")
        end = each.end_ns


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    if not data or data[0] != VERSION:
        found = data[0] if data else "nothing"
        raise CommandError(f"command: {other_version(found, VERSION)}")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"not a registry command: {error}") from None


def check_number(ids: Ids) -> None:
    """Raises CommandError if there are more ids than fit into one entry."""
    if len(ids) > MAX_ENTRY_IDS:
        raise CommandError(f"{len(ids)} ids; at most {MAX_ENTRY_IDS} fit into one entry")


def check_inserts(ids: Ids) -> None:
    """Checks the number of ids, their kinds and their tokens. Raises CommandError."""
    check_number(ids)
    if ids.kinds.tobytes().translate(None, _KINDS):
        raise CommandError(f"kinds: not all are from {int(min(Kind))} to {int(max(Kind))}")
    if len(ids) and int(np.minimum.reduce(ids.tokens)) >> BATCH_BITS == 0:
        raise CommandError("tokens: a token without an incarnation")


def take(column: bytes, width: int, rows: I64) -> bytes:
    """Returns the given rows of a column whose values are ``width`` bytes long."""
    if len(rows) * width == len(column):
        return column  # all of them: rows are ascending
    return np.frombuffer(column, f"V{width}")[rows].tobytes()
