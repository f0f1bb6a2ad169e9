"""A service compares the id rule of its own join with the registry's before it registers anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import structlog

from photon.assembly import registry as assembly
from photon.config.errors import UsageError
from photon.idregistry.core.outcomes import Description
from photon.idregistry.core.sharding import single_range
from tests.unit.idregistry.model import CLOCK

RULE, OTHER = b"rule of clicks", b"another rule"


class Told:
    """The registry's answers to describe, in order; the last one again and again."""

    problem = "no registry replica answers"

    def __init__(self, *id_rules: dict[str, bytes] | None) -> None:
        self.left = list(id_rules)
        self.asked: Callable[[], None] = lambda: None

    async def describe(self, *, timeout: float) -> Description | None:
        self.asked()
        rules = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        return None if rules is None else Description("r1", single_range(1), (), rules, CLOCK)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "DESCRIBE_S", 0.001)


async def agree(registry: Told, stop: asyncio.Event | None = None) -> bool:
    return await assembly.agree(registry, "clicks", RULE, stop or asyncio.Event())  # type: ignore[arg-type]


async def test_other_joins_are_no_concern_of_it() -> None:
    assert await agree(Told({"clicks": RULE, "orders": OTHER}))


async def test_another_rule_is_refused_with_the_joins_name() -> None:
    with pytest.raises(UsageError, match="key_file or the adapter of join clicks differs"):
        await agree(Told({"clicks": OTHER, "orders": RULE}))


async def test_it_waits_for_the_registry_and_for_its_join_and_says_each_once() -> None:
    with structlog.testing.capture_logs() as logs:
        assert await agree(Told(None, None, {"orders": OTHER}, {"orders": OTHER}, {"orders": OTHER, "clicks": RULE}))
    problems = [entry["problem"] for entry in logs]
    assert problems[0] == Told.problem
    assert "does not know join clicks yet" in problems[1]
    assert len(problems) == 2


@pytest.mark.parametrize("rules", [None, {"orders": OTHER}], ids=["silent", "join unknown"])
async def test_it_ends_when_it_is_told_to(rules: dict[str, bytes] | None) -> None:
    stop, registry = asyncio.Event(), Told(rules)
    registry.asked = stop.set
    assert not await agree(registry, stop)
