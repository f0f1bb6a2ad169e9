"""Everything that Photon encodes for the network and for its disk: it comes back as it was, or not at all.

One list of codecs, one property. With a checksum, every flipped byte and every cut is noticed; without, a damaged
value that is read all the same could have been written. Whole files, with their torn ends and sealed parts, have
their own tests (``raft/test_journal``, ``raft/test_snapshot``, ``joiner/test_redo_log``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import LogFile
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord
from photon.config.errors import UsageError
from photon.config.interval_clock import Interval
from photon.config.rpc import WireError
from photon.eventstore import columns, eventstore_pb2
from photon.eventstore.api import (
    Details,
    EventLookUps,
    Forgotten,
    KeyArrivals,
    LookUpCode,
    PrimaryPlace,
    Progress,
    SourceProgress,
    UnavailableLog,
)
from photon.eventstore.cache_nodes import wire as cache_wire
from photon.eventstore.cache_nodes.wire import NodeCounts
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.segments import CacheCounts
from photon.idregistry import registry_pb2
from photon.idregistry.api import Kind
from photon.idregistry.client.messages import clock_facts, clock_status
from photon.idregistry.core import commands as c
from photon.idregistry.core.clock_offsets import ANYWHERE, Agreement, ClockFacts, Offset
from photon.idregistry.raft import codec as raft
from photon.idregistry.witness import WitnessLog
from photon.joiner import joiner_pb2
from photon.joiner import wire as joiner_wire
from photon.joiner.api import WAIT_NS, JoinAnswers, Outcome
from photon.joiner.copies import copies_pb2
from photon.joiner.copies import wire as copies_wire
from photon.joiner.copies.api import EMPTY, CopyAnswer, CopyBytes, CopyOf, Extension, Part, Status
from photon.joiner.slot import redo_log
from photon.joiner.slot.redo_log import RedoFrame
from photon.lab.wan import wan_pb2
from photon.lab.wan import wire as wan_wire
from photon.lab.wan.links import Change, DirectionNow, Fault
from photon.outputs import Cursor, OutputLog
from photon.outputs.cursor import Position
from tests.unit.idregistry.model import ALL_OF_TIME, Row, batch, reopen
from tests.unit.joiner.told import TakenBy, answers_of, by_row


class Damaged(Exception):
    """A codec's result of ``None``."""


@dataclass(frozen=True)
class Codec:
    """``values``: one of each kind; ``refuses``: what ``decode`` raises; ``sums``: there is a checksum."""

    values: Sequence[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    refuses: tuple[type[Exception], ...]
    sums: bool = False


def protobuf(message: Any, values: Sequence[Any], out: Callable[[Any], Any], back: Callable[[Any], Any]) -> Codec:
    def encode(value: Any) -> bytes:
        return bytes(out(value).SerializeToString())

    return Codec(values, encode, lambda data: back(message.FromString(data)), (WireError, DecodeError))


# -- values ----------------------------------------------------------------------------------------------------------
RAFT: list[raft.Message] = [
    raft.RequestVote(1, 2**62, 0),
    raft.Vote(7),
    raft.Append(1, 2, 3, 4, [(1, raft.NO_OP), (2, raft.REGULAR + b"command"), (2, raft.REGULAR)]),
    raft.Append(1, 2, 3, 4, []),
    raft.AppendAck(1, 2, True),
    raft.Chunk(1, 2, 3, 4, 5, b"data"),
    raft.ChunkAck(1, 2, 3, False),
    raft.AskVotes(1, 2, 3),
    raft.WouldVote(1, 2, True),
    raft.Stand(1),
    raft.Sleep(1, 2),
    raft.Asleep(1, 2),
    raft.KeepsStill(9),
]
SHARD: list[c.ShardCommand] = [
    batch([Row(1), Row(2, generation=3)], clears=[Row(4)]),
    batch([]),
    reopen([Row(1)], operator=True),
    c.Announce("slot", "dc", [1, 2, 3], "host:1:2"),
    c.Fence("slot"),
    c.Boundary(-5),
    c.ClearBelow(3, 1 << 40, c.MAX_CLEARED, bytes(range(16))),
    c.Configure(3, ALL_OF_TIME),
    c.Barrier(b"mark"),
    c.CheckState(1, 2, b"hash"),
    c.OpenShard(),
    c.OpenShard(-7),
    c.RegisterAgain("slot", "dc", bytes(16), bytes(8), b"\xff" * 8, b"\1", bytes(4), cleared=True),
    c.Seed([("slot", "dc", 0, False), ("other", "dc", 3, True)]),
    c.Prepare(2, 10, (1, 2)),
    c.Activate(2),
    c.Abort(2),
    c.Close(),
]
CONFIG: list[c.ConfigCommand] = [
    c.SetUp(ALL_OF_TIME, {"clicks": b"rule", "orders": b"other"}),
    c.SetUp(ALL_OF_TIME),
    c.OpenSlot("slot", "dc", 0, b"nonce", "host"),
    c.RetireSlot("slot"),
    c.ExtendWitness("slot", 3, (), (WitnessLog(1, 2**40, b"hash"), WitnessLog(0, 0))),
    c.Barrier(),
    c.Intend(2, 10, (1, 2)),
    c.Decide(2, False, "why"),
    c.Drop(3),
    c.JudgeBy("clicks", "joiner east-1 of east", b"rule"),
    c.JudgeBy("clicks", "", b"rule"),
    c.KeepSamples("clicks", [c.Sample("foreign", "a.log", b"r" * 16, b"k" * 16, b"i" * 16, -5, b"key", b"\xffid")]),
    c.KeepSamples("clicks", [c.Sample("primary", "a.log", b"r" * 16, b"k" * 16)]),
]
A, B = LogFile("a.log", b"head"), LogFile("b.log")
EVENTS = Events.of(
    [
        ForeignEvent(b"\xffa", bytes(16), -5, b"", b"raw \x00\xff", A, 2**40, WAIT_NS, 3),
        ForeignEvent(b"b", bytes(range(16)), 2**62, b"k", b"", B, 0, 7),
        ForeignEvent(b"c", b"c" * 16, 0, b"k", b"r", A, 1, 0),
    ]
)
ANSWERS = answers_of(
    [Outcome.TAKEN, Outcome.REJECTED, Outcome.TAKEN],
    {0: TakenBy("dc1", Kind.UNMATCHED, False, -7, 1 << 63), 2: TakenBy("dc0", Kind.JOINED, True)},
    {1: "why — ünicode"},
    ambiguous=(1,),
)
LOOKED_UP = EventLookUps.of(
    [LookUpCode.FOUND, LookUpCode.NOT_YET, LookUpCode.FOUND, LookUpCode.ABSENT, LookUpCode.UNAVAILABLE],
    [PrimaryRecord(b"one", A, 1 << 40), None, PrimaryRecord(b"", B, 0), None, None],
    {0: PrimaryPlace(B, 1 << 39)},
)
LOGS = (
    UnavailableLog("a.log.7", "0" * 32, "its file is gone", 12, 34, False, True),
    UnavailableLog("b.log", "1" * 32, "it cannot be opened (Permission denied)", 1, 5, True, False),
)
DETAILS = Details(Progress(*range(7, 20)), (SourceProgress("deep/a.log", "2" * 32, 10, 20, 30, -5),), LOGS)
SOURCE = cache_wire.source_of(b"rule")
FOUND = FoundRecords.of([(0, "id", PrimaryRecord(b"one", A, 7)), (2, "jd", PrimaryRecord(b"", B, 1 << 40))])
FED = (np.array([5, 9], "u8"), np.array([0, 3], "i8"), np.array([7, 1 << 39], "u8"))
ENDS = (WitnessLog(1, 5, b"hash"), *EMPTY[1:])
EXTENSION = Extension(3, ENDS, (Part(0, 1, b"line\n"), Part(0, 2, b"a\nb\n")), EMPTY)
COPY = CopyOf("east", "east-1")
FRAME = RedoFrame(b"note", np.arange(3, dtype=np.uint64), (b"body", b"-more"))


def feed_of(identity: str) -> bytes:
    return cache_wire.feed(SOURCE, [cache_wire.piece(identity, A, [b"ab\n", b"xyz\n"], *FED)] * 2)


def frame_of(data: bytes) -> RedoFrame:
    decoded = redo_log.decode_frame(data, 0)
    if decoded is None or decoded[1] != len(data):
        raise Damaged
    return decoded[0]


CLOCKS = [
    ClockFacts(Interval(5, 3, synchronised=True), each, Offset(-1, 1), {"r2": Offset(-7, 9), "r3": ANYWHERE}, "why")
    for each in Agreement
]
CODECS: Mapping[str, Codec] = {
    "raft": Codec(RAFT, raft.encode, raft.decode, (raft.BadMessage,)),
    "shard commands": Codec(SHARD, c.encode, c.decode_shard, (c.CommandError,)),
    "config commands": Codec(CONFIG, c.encode, c.decode_config, (c.CommandError,)),
    "join requests": protobuf(
        joiner_pb2.JoinRequest, [EVENTS, Events.of([])], lambda x: joiner_wire.request("j", x), joiner_wire.asked
    ),
    "join replies": protobuf(
        joiner_pb2.JoinReply, [ANSWERS], joiner_wire.reply, lambda message: joiner_wire.answered(message, 3)
    ),
    "look-ups": protobuf(
        eventstore_pb2.EventLookUpRequest,
        [([b"k", b""], [-(2**63), 2**63 - 1], None), ([b"k"], [0], [-(2**63)])],
        lambda x: columns.request("j", *x),
        columns.asked,
    ),
    "what was looked up": protobuf(
        eventstore_pb2.EventLookUpReply, [LOOKED_UP], columns.reply, lambda message: columns.answered(message, 5)
    ),
    "arrivals": protobuf(
        eventstore_pb2.ArrivedReply, [KeyArrivals(1, 2, [b"k", b""], True)], columns.arrived_reply, columns.came_of
    ),
    "rows sought": protobuf(
        eventstore_pb2.SeekReply, [[0, 2], []], columns.seek_reply, lambda message: columns.sought_of(message, 3)
    ),
    "progress": protobuf(
        eventstore_pb2.ProgressReply, [DETAILS, Details(Progress(1))], columns.details_reply, columns.details_of
    ),
    "logs given up": protobuf(
        eventstore_pb2.ForgetReply, [Forgotten(LOGS, ("x: no",))], columns.forget_reply, columns.forgotten_of
    ),
    "cache questions": protobuf(
        eventstore_pb2.CacheFind, [FED[0]], lambda x: cache_wire.find(SOURCE, x), cache_wire.asked
    ),
    "cache answers": protobuf(
        eventstore_pb2.CacheFound, [FOUND], cache_wire.found, lambda x: cache_wire.located(x, np.arange(3))
    ),
    "cache counts": protobuf(
        eventstore_pb2.CacheCountsReply,
        [NodeCounts(CacheCounts(1, 2, 3, 4, 5, 6), 7, 8, 9)],
        cache_wire.counts_reply,
        cache_wire.counts_of,
    ),
    "copies": protobuf(
        copies_pb2.ExtendCopy, [EXTENSION], lambda x: copies_wire.extension_out(COPY, x), copies_wire.extension_in
    ),
    "keepers' answers": protobuf(
        copies_pb2.CopyState,
        [CopyAnswer(status, 2, ENDS, "why") for status in Status],
        copies_wire.answer_out,
        copies_wire.answer_in,
    ),
    "pieces of copies": protobuf(
        copies_pb2.CopyPiece,
        [CopyBytes(7, b"data"), CopyBytes(-1, b"")],
        copies_wire.piece_out,
        copies_wire.piece_in,
    ),
    "changes of links": protobuf(
        wan_pb2.SetRequest,
        [
            [Change("east", "west"), Change("east", "west", delay_s=0.0)],
            [Change("west", "east", delay_s=0.05, fault=fault) for fault in Fault],
        ],
        wan_wire.set_request,
        wan_wire.changes,
    ),
    "links": protobuf(
        wan_pb2.ListReply,
        [[DirectionNow("east", "west", 0.05, fault, 1 << 40, 7) for fault in Fault]],
        wan_wire.list_reply,
        wan_wire.directions,
    ),
    "clocks": protobuf(
        registry_pb2.DescribeReply,
        CLOCKS,
        lambda facts: registry_pb2.DescribeReply(clock=clock_status(facts)),
        clock_facts,
    ),
    "cursors": Codec(
        [Cursor(), Cursor({OutputLog("s0", "joined"): Position(3, 1 << 40), OutputLog("s1", "x"): Position(0, 0)})],
        Cursor.encode,
        lambda data: Cursor.decode(data, "test"),
        (UsageError,),
    ),
    "frames of the redo log": Codec(
        [FRAME, RedoFrame(b"", np.empty(0, np.uint64), ())],
        lambda frame: b"".join(redo_log._encode(frame, 7)),
        frame_of,
        (Damaged,),
        sums=True,
    ),
}


# -- the property ----------------------------------------------------------------------------------------------------
def plain(value: Any) -> Any:
    """The same for values with the same meaning: columns, parts of a body and floats that are no numbers
    among them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, RedoFrame):
        return value.note, value.tokens.tolist(), b"".join(value.body)
    if isinstance(value, Events):
        return [tuple(row) for row in value.rows()]
    if isinstance(value, JoinAnswers):
        return by_row(value)
    if isinstance(value, EventLookUps):
        return plain(value.answers), plain(value.records), plain(value.ambiguous)
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, [plain(getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return type(value).__name__, [plain(getattr(value, each.name)) for each in dataclasses.fields(value)]
    if isinstance(value, Mapping):
        return {repr(plain(key)): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    return repr(value) if isinstance(value, float) else value


CASES = [(name, at) for name, codec in CODECS.items() for at in range(len(codec.values))]


@pytest.mark.parametrize(("name", "at"), CASES)
def test_what_is_encoded_comes_back(name: str, at: int) -> None:
    codec = CODECS[name]
    assert plain(codec.decode(codec.encode(codec.values[at]))) == plain(codec.values[at])


def damaged(data: bytes, draw: st.DataObject) -> bytes:
    """Some of its bytes flipped, cut, or followed by others."""
    how = draw.draw(st.sampled_from(("flip", "cut", "both", "more")))
    whole = bytearray(data)
    if how in ("flip", "both"):
        whole[draw.draw(st.integers(0, len(whole) - 1))] ^= draw.draw(st.integers(1, 255))
    if how in ("cut", "both"):
        del whole[draw.draw(st.integers(0, len(whole) - 1)) :]
    return bytes(whole) + (draw.draw(st.binary(min_size=1, max_size=9)) if how == "more" else b"")


@pytest.mark.parametrize("name", CODECS)
@settings(deadline=None)
@given(st.data())
def test_damage_is_refused_or_reads_as_what_could_have_been_written(name: str, data: st.DataObject) -> None:
    codec = CODECS[name]
    encoded = codec.encode(data.draw(st.sampled_from(codec.values)))
    if not encoded:
        return
    try:
        read = codec.decode(damaged(encoded, data))
    except codec.refuses:
        return
    assert not codec.sums
    assert plain(codec.decode(codec.encode(read))) == plain(read)


@pytest.mark.parametrize("name", CODECS)
@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=4))
def test_garbage_is_refused_or_means_something(name: str, garbage: bytes, begins: bytes) -> None:
    codec = CODECS[name]
    for data in (garbage, codec.encode(codec.values[0])[: len(begins)] + garbage):
        try:
            codec.decode(data)
        except codec.refuses:
            continue
        assert not codec.sums


@pytest.mark.parametrize("identity", ["id", "ünicode"])
def test_what_cache_nodes_are_fed(identity: str) -> None:
    """Encoded by hand, and for a reader other than the writer."""
    encoded = feed_of(identity)
    segments = cache_wire.fed(eventstore_pb2.CacheFeed.FromString(encoded))
    found = [(segment.identity, segment.file, hashes.tolist()) for segment, hashes, _ in segments]
    assert found == [(identity, A, [5, 9])] * 2
    for at in range(len(encoded)):
        for other in (encoded[:at], encoded[:at] + bytes([encoded[at] ^ 255]) + encoded[at + 1 :]):
            with contextlib.suppress(WireError, DecodeError):
                cache_wire.fed(eventstore_pb2.CacheFeed.FromString(other))


@pytest.mark.parametrize(
    ("commands", "union"), [(SHARD, c.ShardCommand), (CONFIG, c.ConfigCommand), (RAFT, raft.Message)]
)
def test_every_kind_is_tried(commands: Sequence[Any], union: Any) -> None:
    assert {type(each) for each in commands} == set(get_args(union))


def test_a_group_does_not_take_the_other_kind_s_commands() -> None:
    both = {"barrier"}
    for commands, decode in ((SHARD, c.decode_config), (CONFIG, c.decode_shard)):
        for command in commands:
            if type(command).__struct_config__.tag not in both:
                with pytest.raises(c.CommandError):
                    decode(c.encode(command))
