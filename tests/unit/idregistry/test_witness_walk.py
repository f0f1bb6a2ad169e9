"""Random openings and extensions, including late and repeated ones, against a model of the witness cell."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from photon.idregistry.api import Opened
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.witness import Witness, Witnessed, WitnessLog

Message = tuple[int, Witness, Witness]


class WitnessCell(RuleBasedStateMachine):
    """One slot. A process knows where its witness ended when it opened; messages may arrive at any time again."""

    @initialize()
    def begin(self) -> None:
        self.machine = ConfigMachine()
        self.newest = 0
        self.cell: Witness = ()
        self.retired = False
        self.ends: dict[int, Witness] = {}  # incarnation -> where it believes that the witness ends
        self.sent: list[Message] = []
        self.chain: list[Witness] = [()]

    @rule()
    def open(self) -> None:
        opened = self.machine.apply(1, c.encode(c.OpenSlot("s", "dc", self.newest, b"%d" % len(self.sent))))
        assert isinstance(opened, Opened)
        if self.retired:
            assert opened.incarnation == 0
            return
        if opened.incarnation != self.newest:
            assert opened.incarnation == self.newest + 1
            self.newest = opened.incarnation
        assert opened.witness == self.cell
        self.ends.setdefault(self.newest, self.cell)

    @rule(
        who=st.integers(0, 3),
        grown=st.integers(0, 5),
        rolled=st.booleans(),
        hashed=st.sampled_from([b"a", b"b"]),
        heard=st.booleans(),
    )
    def extend(self, who: int, grown: int, rolled: bool, hashed: bytes, heard: bool) -> None:
        incarnation = self.newest - who
        if incarnation < 1 or incarnation not in self.ends:
            return
        end = self.ends[incarnation]
        last = end[0] if end else WitnessLog(1, 0)
        to = (WitnessLog(last.number + rolled, grown if rolled else last.length + grown, hashed),)
        self.sent.append((incarnation, end, to))
        extended = self.deliver(len(self.sent) - 1)
        if heard and not extended.reason:
            self.ends[incarnation] = to

    @rule(which=st.integers(0, 30))
    def again(self, which: int) -> None:
        if self.sent:
            self.deliver(which % len(self.sent))

    @rule()
    def retire(self) -> None:
        if self.newest and len(self.sent) > 8:
            self.machine.apply(1, c.encode(c.RetireSlot("s")))
            self.retired = True

    @rule()
    def reload(self) -> None:
        chunks = list(self.machine.snapshot())
        self.machine = ConfigMachine()
        self.machine.restore(chunks)

    def deliver(self, which: int) -> Witnessed:
        incarnation, end, to = self.sent[which]
        extended = self.machine.apply(1, c.encode(c.ExtendWitness("s", incarnation, end, to)))
        assert isinstance(extended, Witnessed)
        mine = incarnation == self.newest and not self.retired
        longer = not end or (to[0].number, to[0].length) > (end[0].number, end[0].length) or to == end
        allowed = mine and (self.cell == to or (self.cell == end and longer))
        assert (extended.reason == "") == allowed
        if allowed and self.cell != to:
            self.cell = to
            self.chain.append(to)
        assert extended.witness == self.cell
        return extended

    @invariant()
    def it_is_a_chain(self) -> None:
        if hasattr(self, "machine"):
            assert self.machine.witnessed("s") == Witnessed(self.newest, self.cell, retired=self.retired)
            places = [(log[0].number, log[0].length) for log in self.chain if log]
            assert places == sorted(set(places))


WitnessCell.TestCase.settings = settings(deadline=None, max_examples=80, stateful_step_count=40)
TestWitnessCell = WitnessCell.TestCase
