"""The loop around an engine, with links that lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

import pytest

import photon
from photon.computing import Computation, Context, Record, Topology
from photon.computing.engine import Engine
from photon.computing.errors import TopologyError
from photon.computing.injector import Injector
from photon.computing.intervals import HASHES, Interval, Intervals, even
from photon.computing.links import Frame, Links
from photon.computing.moving import split
from photon.computing.owner import RESEND_S, Owner
from photon.computing.publisher import Publisher
from photon.computing.store import Store, in_memory
from photon.computing.wire import ENDED_NS, Ack, Input, Message, Watermark
from photon.config.disk import RealDisk
from tests.kit.clock import ManualClock

TWO = even(2)


class Ticking(ManualClock):
    """Continues whenever it is looked at."""

    def monotonic(self) -> float:
        self.passes(0.01)
        return super().monotonic()


class LossyLinks(Links):
    """Messages to others are lost and remembered."""

    def __init__(self, directory: Path, name: str = "i0") -> None:
        super().__init__(directory, [name], [name])
        self.sent: list[Message] = []

    def send(self, interval: str, frame: Frame) -> None:
        if isinstance(frame, Message):
            self.sent.append(frame)
        else:
            super().send(interval, frame)

    def receive(self, message: Message) -> None:
        super().send(message.target, message)


class Pass(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("out", record.value)


class Pass2(Pass):
    name = "unknown"


class Sink(Computation):
    def process_record(self, ctx: Context, record: Record) -> None: ...


def _topology(*, alone: bool = False) -> Topology:
    made = Topology("t")
    made.add(Pass(), {made.source("in"): lambda record: record.value}, ["out"])
    if not alone:
        made.add(Sink(), {"out": lambda record: record.value[::-1]})
    return made


def test_a_message_that_was_lost_is_sent_again_though_a_late_acknowledgement_came_meanwhile(tmp_path: Path) -> None:
    engine, clock, links = Engine(_topology(), in_memory(TWO.all[0]), TWO), ManualClock(), LossyLinks(tmp_path)
    owner = Owner("i0", engine, [], {}, disk=RealDisk(), clock=clock, links=links)
    for at in (1, 2):
        begin = None if at == 1 else b"1"
        engine.take(Input("in", begin, b"%d" % at, [Record(f"key{n}", 1, "in") for n in range(20)]), 0)
        owner.step()
        if at == 1:
            (first,) = links.sent
            links.send("i0", Ack("i0", "i1", first.upto))
            owner.step()
    links.send("i0", Ack("i0", "i1", first.upto))  # that of a repetition
    owner.step()
    assert len(links.sent) == 2
    clock.passes(RESEND_S + 1)
    owner.step()
    owner.step()
    assert links.sent[2:] == links.sent[1:2]
    links.send("i0", Ack("i0", "i1", links.sent[-1].upto))
    owner.step()
    clock.passes(RESEND_S + 1)
    owner.step()
    owner.step()
    assert len(links.sent) == 3


def test_what_was_committed_before_a_split_is_published_before_what_its_heirs_publish(tmp_path: Path) -> None:
    made, out = _topology(), tmp_path / "published"
    made.publish("out", "out")
    whole, clock = even(1), ManualClock()
    stores = {"i0": in_memory(whole.all[0])}

    def owner(name: str, intervals: Intervals) -> Owner:
        engine, links = Engine(made, stores[name], intervals), LossyLinks(tmp_path, name)
        return Owner(name, engine, [], {"out": out}, disk=RealDisk(), clock=clock, links=links)

    def new_store(interval: Interval) -> Store:
        stores[interval.id] = in_memory(interval)
        return stores[interval.id]

    def feed(which: Owner, begin: bytes | None, end: bytes) -> None:
        records = [Record(f"key{n}", n, "in") for n in range(20)]
        assert which.engine.take(Input("in", begin, end, records), 0)
        which.engine.commit()

    old = owner("i0", whole)
    feed(old, None, b"1")
    old.close()  # killed before it has published anything
    halves = split(stores["i0"], HASHES // 2, ("a", "b"), new_store)
    owners = [owner(each.id, Intervals(halves)) for each in halves]
    for each in reversed(owners):
        feed(each, b"1", b"2")
        each.drain()
    assert {record.event_id.partition(":")[0] for record in photon.read(out)} == {"i0"}
    clock.passes(RESEND_S)
    for each in owners:
        each.step()
        each.step()
    counts = Counter(record.event_id.partition(":")[0] for record in photon.read(out))
    assert (counts["i0"], counts["a"] + counts["b"]) == (20, 20)
    for each in owners:
        each.close()


def test_who_waits_to_publish_has_not_ended(tmp_path: Path) -> None:
    made, out = _topology(alone=True), tmp_path / "published"
    made.publish("out", "out")
    stores, clock = {"i0": in_memory(even(1).all[0])}, ManualClock()

    def new_store(interval: Interval) -> Store:
        stores[interval.id] = in_memory(interval)
        return stores[interval.id]

    with closing(Publisher(RealDisk(), out, "i0")):  # killed before it has published anything
        Engine(made, stores["i0"], even(1)).commit()
    halves = split(stores["i0"], HASHES // 2, ("a", "b"), new_store)
    engine, links = Engine(made, stores["b"], Intervals(halves)), LossyLinks(tmp_path, "b")
    owner = Owner("b", engine, [], {"out": out}, disk=RealDisk(), clock=clock, links=links)
    records = [Record(f"key{n}", n, "in") for n in range(20)]
    assert engine.take(Input("in", None, b"1", records, Watermark(ENDED_NS, ENDED_NS)), 0)
    for _ in range(3):
        clock.passes(RESEND_S)
        owner.step()
        assert not owner.ended
    Publisher(RealDisk(), out, "i0").end()
    clock.passes(RESEND_S)
    owner.step()
    owner.step()
    assert owner.ended
    assert len(list(photon.read(out))) == 10
    owner.close()


def test_a_stream_that_is_published_elsewhere_from_now_on(tmp_path: Path) -> None:
    whole, clock, links = even(1), ManualClock(), LossyLinks(tmp_path)
    made = _topology()
    made.publish("out", "out")
    engine = Engine(made, in_memory(whole.all[0]), whole)
    owner = Owner("i0", engine, [], {"out": tmp_path / "out"}, disk=RealDisk(), clock=clock, links=links)

    def feed(begin: bytes | None, end: bytes) -> None:
        at = int(end)
        assert engine.take(Input("in", begin, end, [Record(f"key{at}", at, "in")], Watermark(at, at)), 0)
        owner.step()

    feed(None, b"1")
    wrong, moved = _topology(), _topology()
    wrong.add(Pass2(), {"none": lambda record: record.value})
    for changed in (wrong, moved):
        changed.publish("out", "new")
        with suppress(TopologyError):
            owner.change(changed, [], {"out": tmp_path / "new"})
        feed(b"%d" % (1 + (changed is moved)), b"%d" % (2 + (changed is moved)))
    read = [[each.event_time_ns for each in photon.read(tmp_path / name)] for name in ("out", "new")]
    assert read == [[1, 2], [3]]
    assert "out" in owner.published
    with closing(Publisher(RealDisk(), tmp_path / "out", "i0")):
        pass
    owner.change(_topology(), [], {})
    owner.change(made, [], {"out": tmp_path / "out"})
    feed(b"3", b"4")
    assert [each.event_time_ns for each in photon.read(tmp_path / "out")] == [1, 2, 4]
    owner.close()


def test_an_owner_that_cannot_start_leaves_its_streams_free(tmp_path: Path) -> None:
    """So that another start gives the same reason, and succeeds once that is gone."""
    places = {"first": tmp_path / "first", "second": tmp_path / "second"}

    def start() -> Owner:
        made = _topology()
        made.add(Pass2(), {"out": lambda record: record.value}, list(places))
        for stream in places:
            made.publish(stream, stream)
        engine = Engine(made, in_memory(even(1).all[0]), even(1))
        return Owner("i0", engine, [], places, disk=RealDisk(), clock=ManualClock(), links=LossyLinks(tmp_path))

    blocks = [tmp_path / "second", tmp_path / "second/.photon/output.json.i0/file"]
    for block in blocks:
        block.parent.mkdir(parents=True, exist_ok=True)
        block.write_text("")
        for _ in range(2):
            with pytest.raises(OSError, match="second"):
                start()
        block.unlink()
    blocks[-1].parent.rmdir()
    start().close()


class Again(Pass):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("again", record.value)


def _three() -> Topology:
    made = Topology("t")
    made.add(Pass(), {made.source("in"): lambda record: record.value}, ["out"])
    made.add(Again(), {"out": lambda record: record.value[::-1]}, ["again"])
    made.add(Sink(), {"again": lambda record: record.value})
    return made


def test_watermarks_are_one_stage_further_with_each_round_of_messages(tmp_path: Path) -> None:
    names = [each.id for each in TWO.all]
    links, clock = Links(tmp_path, names, names), ManualClock()
    engines = [Engine(_three(), in_memory(each), TWO) for each in TWO.all]
    owners = [Owner(each.id, each, [], {}, disk=RealDisk(), clock=clock, links=links) for each in engines]
    for at in range(1, 5):
        for engine in engines:
            records = [Record(f"key{n}", at, "in") for n in range(20)]
            begin = None if at == 1 else b"%d" % (at - 1)
            engine.take(Input("in", begin, b"%d" % at, records, Watermark(at, at)), 0)
        for _ in range(3):  # one for each stage
            for owner in owners:
                owner.step()
        assert [mark.percentile_ns for each in engines for mark in each.watermarks().values()] == [at] * 6
    assert sum(each.counts().records for each in engines) == 4 * 20 * 3


class Endless:
    """Endless input."""

    stream = "in"

    def __init__(self) -> None:
        self.at = 0

    def mark(self) -> Watermark:
        return Watermark(10 * self.at, 10 * self.at)

    def read(self, upto: bytes | None) -> Iterator[Input]:
        while True:
            begin, self.at = self.at, self.at + 1
            yield Input("in", b"%d" % begin if begin else None, b"%d" % self.at, [], self.mark())


class Logged:
    """A source of one record a step, a second each, with or without a watermark."""

    def __init__(self, stream: str, order: list[str], *, marked: bool) -> None:
        self.stream, self._order, self._marked, self.at = stream, order, marked, 0

    def mark(self) -> Watermark:
        return Watermark(self.at, self.at) if self._marked else Watermark()

    def read(self, upto: bytes | None) -> Iterator[Input]:
        while self.at < 5:
            begin, self.at = self.at, self.at + 1
            self._order.append(self.stream)
            record = Record({"k": "a"}, self.at, self.stream)
            yield Input(self.stream, b"%d" % begin if begin else None, b"%d" % self.at, [record], self.mark())


@pytest.mark.parametrize("marked", [False, True])
def test_sources_are_read_in_turn_by_time(tmp_path: Path, *, marked: bool) -> None:
    order: list[str] = []
    topology = Topology("t")
    by_key = {topology.source(name): (lambda record: str(record.value["k"])) for name in ("one", "two")}
    topology.add(Pass(), by_key, ["out"])
    engine = Engine(topology, in_memory(even(1).all[0]), even(1))
    sources = [cast(Injector, Logged(name, order, marked=marked)) for name in ("one", "two")]
    owner = Owner("i0", engine, sources, {}, disk=RealDisk(), clock=Ticking(), links=LossyLinks(tmp_path))
    while len(order) < 10:
        owner.step()
    assert order == ["one", "two"] * 5


def test_watermarks_that_move_by_what_was_heard_go_on_after_one_batch(tmp_path: Path) -> None:
    engine, clock, links = Engine(_three(), in_memory(TWO.all[0]), TWO), Ticking(), LossyLinks(tmp_path)
    injector = Endless()
    owner = Owner("i0", engine, [cast(Injector, injector)], {}, disk=RealDisk(), clock=clock, links=links)
    owner.step()
    assert injector.at > 2
    read = injector.at
    links.send("i0", Ack("i0", "i1", links.sent[-1].upto))
    links.receive(Message("i1", "i0", 1, (), {"out": Watermark(7, 7)}))
    owner.step()
    assert injector.at == read + 1
    assert links.sent[-1].watermarks["again"].percentile_ns == 7
    links.receive(Message("i1", "i0", 2, (), {"out": Watermark(7, 7)}))  # nothing has moved
    owner.step()
    assert injector.at > read + 3
