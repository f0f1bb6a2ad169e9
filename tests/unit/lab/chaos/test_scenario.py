"""Scenario files."""

from pathlib import Path

import pytest

from photon.lab.chaos.api import Do, Step, WrongScenario
from photon.lab.chaos.scenario import by_hand, load, names, parse
from tests.unit.lab.chaos.places import TOPOLOGY
from tests.unit.refusals import one_line

HEAD = b'version = 1\nabout = "x"\nseconds = 60\n'


def fault(*lines: str) -> bytes:
    return HEAD + b"[[fault]]\n" + "\n".join(lines).encode()


def test_a_fault_is_read() -> None:
    found = parse(fault('at = "2s"', 'for = "500ms"', 'do = "cut"', 'target = ["east"]', "both = false"), "n", "w")
    assert found.steps == (Step(2.0, 0.5, Do.CUT, ("east",), {"both": False}),)
    assert (found.name, found.seconds, found.rate, found.every_s) == ("n", 60, 100, None)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"version = 2", "version"),
        (b"\xff", "w: "),
        (fault("at = 1", 'do = "explode"'), "explode"),
        (fault("at = 1", 'do = "pause"', 'target = ["x"]'), "fault 1: pause needs 'for'"),
        (fault("at = 1", "for = 2", 'do = "restart"', 'target = ["x"]'), "restart has no duration; leave out 'for'"),
        (fault("at = 55", "for = 10", 'do = "pause"', 'target = ["x"]'), "ends at 65 s, after the scenario's 60 s"),
        (fault("at = 1", "for = 1", 'do = "delay"', 'target = ["a", "b"]'), "needs delay"),
        (fault("at = 1", "for = 1", 'do = "pause"', "skew = 3"), "skew does not apply"),
        (fault("at = 1", "for = 1", 'do = "loss"', 'target = ["a"]'), "needs two regions"),
        (HEAD + b"rates = 3", "rates"),
        (HEAD + b"[random]\nevery = 0", "random.every"),
        (b'version = 1\nabout = "x"\nseconds = 0', "seconds must be above 0"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, says: str) -> None:
    with one_line(WrongScenario, says):
        parse(data, "n", "w")


@pytest.mark.parametrize("name", names())
def test_each_scenario_that_comes_with_photon_fits_its_deployment(name: str) -> None:
    found = load(name)
    names_of_own = {name.replace("-1", f"-{number}"): None for name in TOPOLOGY.processes for number in (1, 2)}
    own = type(TOPOLOGY)(
        TOPOLOGY.replicas,
        TOPOLOGY.datacentres,
        {name: next(r for r in ("east", "west", "central") if r in name or r == TOPOLOGY.replicas.get(name))
         for name in names_of_own},
        TOPOLOGY.regions,
    )  # fmt: skip
    found.checked(own, frozenset(Do))
    assert found.about
    assert "\n" not in found.about


def test_too_much_is_refused_unless_the_scenario_says_so() -> None:
    body = fault("at = 1", "for = 2", 'do = "kill"', 'target = ["registry r1", "registry r2", "registry r3"]')
    with pytest.raises(WrongScenario, match="majority = false allows it"):
        parse(body, "n", "w").checked(TOPOLOGY, frozenset(Do))
    parse(body.replace(b"seconds", b"majority = false\nseconds"), "n", "w").checked(TOPOLOGY, frozenset(Do))
    with pytest.raises(WrongScenario, match="kill is not possible here"):
        parse(body, "n", "w").checked(TOPOLOGY, frozenset({Do.PAUSE}))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WrongScenario, match="no such scenario or file"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "mine.toml").write_bytes(HEAD)
    assert load(str(tmp_path / "mine.toml")).name == "mine"


def test_one_fault_by_hand() -> None:
    step = by_hand(Do.CUT, ["east"], 3.0, fault="reset", both=None)
    assert step == Step(0.0, 3.0, Do.CUT, ("east",), {"fault": "reset"})
    with pytest.raises(WrongScenario, match="skew does not apply"):
        by_hand(Do.KILL, ["x"], 0.0, skew=3.0)
