"""Compares the ledgers of all datacentres with the generator's truth. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from photon.demo.generator import Truth
from photon.embedded.status import balances


def ledger_problems(ledgers: Mapping[str, Mapping[str, int]], truth: Truth) -> list[str]:
    """What is wrong with them; each balances, and what one has made the others count as elsewhere."""
    problems = []
    made = {name: ledger["joined"] + ledger["unmatched"] for name, ledger in ledgers.items()}
    for name, ledger in ledgers.items():
        if not balances(ledger):
            problems.append(f"the ledger of {name} does not balance: {dict(ledger)}")
        expected = {
            "read": truth.lines,
            "rejected": truth.malformed,
            "duplicate": truth.duplicates,
            "elsewhere": sum(made.values()) - made[name],
            "pending": 0,
            "late": 0,
            "filtered": 0,
        }
        problems += _differences(f"the ledger of {name} says", ledger, expected)
    total = {verdict: sum(ledger[verdict] for ledger in ledgers.values()) for verdict in ("joined", "unmatched")}
    expected = {"joined": len(truth.joined), "unmatched": len(truth.unmatched)}
    return problems + _differences("all ledgers together say", total, expected)


def _differences(who: str, found: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    return [
        f"{who} {name} {found[name]:,}, the truth is {count:,}"
        for name, count in expected.items()
        if found[name] != count
    ]
