"""Whether everything is right afterwards: against the generator's truth, and with the checks of the nightly job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from photon.fleet.ledger import balances
from photon.lab.chaos.site import Site
from photon.lab.chaos.subprocesses import run_photon
from photon.lab.demo.check import check, ledger_problems
from photon.lab.demo.generator import Truth

SPARK_S = 1800.0
PROBLEMS_MAX = 50


def against_truth(outputs: Iterable[Path], truth: Truth) -> list[str]:
    """Each event exactly once over all outputs, with the right contents: by a program that shares nothing with those
    that made them."""
    return check(outputs, truth).problems


def ledgers_against_truth(
    ledgers: Mapping[str, Mapping[str, int]], truth: Truth, partial: frozenset[str]
) -> list[str]:
    """``partial``: datacentres that left something out or read it twice by what the run did; theirs must balance, and
    where there is one the sums tell nothing."""
    if not partial:
        return ledger_problems(ledgers, truth)
    problems = [f"the ledger of {name} does not balance: {dict(ledger)}" for name, ledger in ledgers.items()
                if not balances(ledger)]  # fmt: skip
    for name, ledger in ledgers.items():
        if name not in partial and ledger["read"] != truth.lines:
            problems.append(f"the ledger of {name} says read {ledger['read']:,}, the truth is {truth.lines:,}")
    return problems


async def with_spark(site: Site, report: Path, since: str) -> list[str]:
    """``photon spark verify`` over the event times of the run, hours that can be judged; what it finds. Raises
    ChaosFailed."""
    arguments = ["spark", "verify", "--config", str(site.file), "--from", since, "--report", str(report)]
    done = await run_photon([*arguments, "-o", "json"], SPARK_S, codes=(0, 3))
    if done.code == 0:
        return []
    found = orjson.loads(done.out)
    problems = found.get("problems", found)
    named = problems.items() if isinstance(problems, dict) else [("problems", problems)]
    return [f"photon spark verify: {key}: {value}" for key, value in named][:PROBLEMS_MAX]
