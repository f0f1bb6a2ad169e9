"""The samples of a join that are kept, and that replicas keep them."""

from __future__ import annotations

import pytest

from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.samples import FIRST, NEWEST, with_others
from photon.idregistry.core.sharding import single_range

JOIN = "clicks"


def sample(number: int, side: str = "foreign", event_id: bytes = b"i" * 16) -> c.Sample:
    return c.Sample(side, f"{number}.log", b"%016d" % number, b"k" * 16, event_id)  # type: ignore[arg-type]


def test_what_was_kept_first_of_a_record_holds() -> None:
    known = with_others((), [sample(1), sample(2)])
    assert with_others(known, [sample(1, event_id=b"j" * 16)]) is known
    assert with_others(known, [sample(1, "primary")]) == (*known, sample(1, "primary"))


def test_the_first_and_the_newest_of_each_side_are_kept() -> None:
    known: tuple[c.Sample, ...] = ()
    many = 100
    for number in range(many):
        known = with_others(known, [sample(number), sample(number, "primary")])
    numbers = [*range(FIRST), *range(many - NEWEST, many)]
    assert known == tuple(sample(number, side) for side in c.SIDES for number in numbers)


def test_the_config_group_keeps_them_over_a_snapshot() -> None:
    machine = ConfigMachine()

    def do(command: c.ConfigCommand) -> object:
        return machine.apply(1, c.encode(command))

    kept = c.KeepSamples(JOIN, [sample(1), sample(2, "primary")])
    assert "does not know join clicks yet" in str(do(kept))
    assert do(c.SetUp(single_range(1), {JOIN: b"rule", "orders": b"rule"})) == ""
    assert do(kept) == ""
    assert do(c.KeepSamples("orders", [sample(3)])) == ""
    other = ConfigMachine()
    other.restore(list(machine.snapshot()))
    for each in (machine, other):
        assert each.samples(JOIN) == (sample(1), sample(2, "primary"))
        assert each.samples("orders") == (sample(3),)
        assert each.samples("others") == ()
    assert list(other.snapshot()) == list(machine.snapshot())
    assert do(c.KeepSamples(JOIN, [sample(4)])) == ""
    assert machine.samples(JOIN) == (sample(1), sample(4), sample(2, "primary"))


@pytest.mark.parametrize(
    "bad",
    [
        c.KeepSamples(JOIN, []),
        c.KeepSamples(JOIN, [sample(n) for n in range(c.MAX_SAMPLES + 1)]),
        c.KeepSamples(JOIN, [c.Sample("foreign", "a.log", b"short", b"k" * 16)]),
        c.KeepSamples(JOIN, [c.Sample("other", "a.log", b"r" * 16, b"k" * 16)]),  # type: ignore[arg-type]
        c.KeepSamples(JOIN, [c.Sample("foreign", "a.log", b"r" * 16, b"k" * 16, id_shown=b"x" * 201)]),
    ],
)
def test_what_does_not_fit_is_no_command(bad: c.KeepSamples) -> None:
    with pytest.raises(c.CommandError):
        c.decode_config(c.encode(bad))
