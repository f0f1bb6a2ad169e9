"""The loop around an engine, with links that lose."""

from __future__ import annotations

from pathlib import Path

from photon.computing import Computation, Context, Record, Topology
from photon.computing.engine import Engine
from photon.computing.intervals import even
from photon.computing.links import Frame, Links
from photon.computing.owner import RESEND_S, Owner
from photon.computing.store import MemoryStore
from photon.computing.wire import Ack, Input, Message
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk

TWO = even(2)


class Clock(SystemClock):
    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic(self) -> float:
        return self.at_s


class LossyLinks(Links):
    """Messages to others go nowhere; they are remembered."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, ["i0"], ["i0"])
        self.sent: list[Message] = []

    def send(self, interval: str, frame: Frame) -> None:
        if isinstance(frame, Message):
            self.sent.append(frame)
        else:
            super().send(interval, frame)


class Pass(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("out", record.value)


class Sink(Computation):
    def process_record(self, ctx: Context, record: Record) -> None: ...


def _topology() -> Topology:
    made = Topology("t")
    made.add(Pass(), {made.source("in"): lambda record: record.value}, ["out"])
    made.add(Sink(), {"out": lambda record: record.value[::-1]})
    return made


def test_a_message_that_was_lost_is_sent_again_though_a_late_acknowledgement_came_meanwhile(tmp_path: Path) -> None:
    engine, clock, links = Engine(_topology(), MemoryStore(TWO.all[0]), TWO), Clock(), LossyLinks(tmp_path)
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
    clock.at_s += RESEND_S + 1
    owner.step()
    owner.step()
    assert links.sent[2:] == links.sent[1:2]
    links.send("i0", Ack("i0", "i1", links.sent[-1].upto))
    owner.step()
    clock.at_s += RESEND_S + 1
    owner.step()
    owner.step()
    assert len(links.sent) == 3
