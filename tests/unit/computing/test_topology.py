"""Topologies that are refused, and their order."""

from __future__ import annotations

import pytest

from photon.computing import Computation, Record, Topology
from photon.computing.errors import TopologyError
from photon.computing.model import name_of


class One(Computation): ...


class Two(Computation): ...


def key(record: Record) -> str:
    return "k"


def test_producers_come_before_consumers() -> None:
    topology = Topology("t")
    topology.add(Two(), {"middle": key}, ["end"])
    topology.add(One(), {topology.source("begin"): key}, ["middle"])
    assert [part.name for part in topology.checked()] == ["one", "two"]


def test_a_name_can_be_given() -> None:
    one = One()
    one.name = "first"
    assert name_of(one) == "first"


def test_a_circle_is_named() -> None:
    topology = Topology("t")
    topology.add(One(), {"b": key}, ["a"])
    topology.add(Two(), {"a": key}, ["b"])
    with pytest.raises(TopologyError, match="one, two form a cycle"):
        topology.checked()


def test_an_unknown_stream_is_named_with_those_that_there_are() -> None:
    topology = Topology("t")
    topology.source("begin")
    topology.add(One(), {"begun": key})
    with pytest.raises(TopologyError, match=r"computation one reads the stream 'begun', .* are begin"):
        topology.checked()


def test_a_stream_has_one_producer() -> None:
    topology = Topology("t")
    topology.add(One(), {"begin": key}, ["a"])
    with pytest.raises(TopologyError, match="computation two: the stream 'a' already has a producer"):
        topology.add(Two(), {"begin": key}, ["a"])


@pytest.mark.parametrize("stream", ["", "a/b", "a:b"])
def test_names_of_streams_can_be_names_of_files(stream: str) -> None:
    with pytest.raises(TopologyError, match="name"):
        Topology("t").source(stream)


def test_weak_productions_are_for_consumers_that_stand_them_twice() -> None:
    topology, one, two, three = Topology("t"), One(), Two(), One()
    three.name = "three"
    topology.add(one, {topology.source("in"): key}, ["ones"])
    topology.add(two, {"ones": key}, ["twos"])
    topology.add(three, {"twos": key, "in": key})
    assert topology.checked()
    one.idempotent = True
    with pytest.raises(TopologyError, match="computation two reads 'ones' of one, which has idempotent = True"):
        topology.checked()
    two.idempotent = True
    with pytest.raises(TopologyError, match="computation three reads 'twos' of two"):
        topology.checked()
    three.idempotent = True
    assert topology.checked()
    two.idempotent = one.idempotent = False
    assert topology.checked()


def test_what_else_is_refused() -> None:
    topology = Topology("t")
    source = topology.source("begin")
    topology.add(One(), {source: key})
    for wrong, why in (
        (lambda: topology.add(One(), {source: key}), "two computations are named 'one'"),
        (lambda: topology.add(Two(), {source: key}, watermark="most"), "watermark is 'most'"),
        (lambda: topology.remove("three"), "no computation 'three'"),
        (lambda: [topology.publish(source, "out") for _ in range(2)], "published twice"),
        (topology.checked, "published is the stream 'begin', which has no producer"),
        (lambda: [topology.published.clear(), topology.add(Two(), {}), topology.checked()], "two has no input"),
    ):
        with pytest.raises(TopologyError, match=why):
            wrong()
    topology.remove("two")
    assert topology.checked()
