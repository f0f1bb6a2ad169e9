"""The newest rule for the verdict unmatched, over orders of announcements; and that replicas keep it."""

from __future__ import annotations

import pytest

from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.verdict_rules import PROCESSES_MAX, RULES_MAX, VerdictRules

JOIN = "clicks"


def after(said: str) -> VerdictRules:
    """``e=A`` a process, named by a letter, announces a rule; ``=A`` a nameless one does."""
    known = VerdictRules()
    for each in said.split():
        process, _, rule = each.partition("=")
        known = known.announced(process, rule.encode())
    return known


@pytest.mark.parametrize(
    ("said", "newest", "brought"),
    [
        ("e=A w=A", "A", "e"),
        ("e=A w=A e=B", "B", "e"),
        ("e=A w=A w=B", "B", "w"),
        ("e=A w=A e=B w=A", "B", "e"),  # the old file, started again
        ("e=A w=A e=B w=A w=A e=B", "B", "e"),
        ("e=A w=A e=B w=B", "B", "e"),
        ("e=A w=A e=B e=A", "A", "e"),  # taken back
        ("e=A w=A e=B w=B w=A e=B", "A", "w"),  # taken back by the other, while e is not restarted with it
        ("e=A w=A e=B w=B w=A e=A", "A", "w"),
        ("e=A w=A e=B w=B w=A e=A e=B", "B", "e"),  # and forth once more
        ("e=A w=A e=B w=C", "C", "w"),  # e is permanently gone, or will be given C too
        ("e=A w=A e=B e=C w=B", "C", "e"),  # an intermediate file comes late
        ("e=A e=B n=A", "B", "e"),  # a new process with an old file
        ("e=A e=B n=C", "C", "n"),
        ("e=A e=B =A", "B", "e"),  # a nameless one with an old file
        ("e=A e=B =C", "C", ""),
        ("=A e=A =B =A", "B", ""),  # nameless ones take nothing back
    ],
)
def test_the_newest_rule_is_the_file_changed_last(said: str, newest: str, brought: str) -> None:
    known = after(said)
    assert (known.newest.decode(), known.brought) == (newest, brought)


def test_what_is_known_already_changes_nothing() -> None:
    known = after("e=A e=B w=B")
    for process, rule in (("e", b"B"), ("w", b"B"), ("", b"B"), ("", b"A")):
        assert known.announced(process, rule) is known


def test_it_is_bounded() -> None:
    known = VerdictRules()
    for n in range(RULES_MAX + 3):
        known = known.announced("e", b"%d" % n)
    assert (len(known.rules), known.newest) == (RULES_MAX, b"%d" % (RULES_MAX + 2))
    for n in range(PROCESSES_MAX + 3):
        known = known.announced(f"p{n}", known.newest)
    assert len(known.processes) == PROCESSES_MAX
    assert "e" not in known.processes


def test_the_config_group_keeps_them_over_a_snapshot() -> None:
    machine = ConfigMachine()

    def do(command: c.ConfigCommand) -> object:
        return machine.apply(1, c.encode(command))

    assert "does not know join clicks yet" in str(do(c.JudgeBy(JOIN, "eventstore of east", b"A")))
    assert do(c.SetUp(single_range(1), {JOIN: b"rule", "orders": b"rule"})) == ""
    for process, rule in (("eventstore of east", b"A"), ("eventstore of west", b"A"), ("eventstore of east", b"B")):
        assert do(c.JudgeBy(JOIN, process, rule)) == ""
    assert do(c.JudgeBy("orders", "", b"C")) == ""
    other = ConfigMachine()
    other.restore(list(machine.snapshot()))
    for each in (machine, other):
        assert each.verdict_rules(JOIN) == VerdictRules(
            (b"A", b"B"), "eventstore of east", {"eventstore of west": b"A", "eventstore of east": b"B"}
        )
        assert each.verdict_rules("orders").newest == b"C"
        assert each.verdict_rules("others") == VerdictRules()
    assert list(other.snapshot()) == list(machine.snapshot())
    assert other.apply(2, c.encode(c.JudgeBy(JOIN, "eventstore of west", b"A"))) == ""
    assert other.verdict_rules(JOIN).newest == b"B"
