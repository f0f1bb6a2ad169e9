"""Compares outputs and ledgers with the generator's truth: every click exactly once, with the right contents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from photon.fleet.ledger import balances
from photon.lab.demo.generator import Truth
from photon.lab.latency import NewLines

EXAMPLES = 5  # maximum number of ids named per finding


@dataclass(slots=True)
class Findings:
    """Disagreements with the truth; ``problems`` is empty if there are none."""

    joined: int = 0
    unmatched: int = 0
    rejected: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, what: str, ids: Iterable[str]) -> None:
        named = list(ids)
        if named:
            self.problems.append(f"{len(named)} {what}: {', '.join(sorted(named)[:EXAMPLES])}")


def records(directory: Path) -> Iterator[dict[str, Any]]:
    """Yields the records in all files of an output log, including compressed ones; ignores torn lines."""
    for lines in NewLines().of(directory):
        yield from map(orjson.loads, lines)


def check(outputs: Iterable[Path], truth: Truth, forgotten: Collection[Path] = ()) -> Findings:
    """Compares outputs, one directory per datacentre, with the truth; an unreadable line is rejected once in each.

    ``forgotten``: outputs whose dispatcher lost its state and exported its rejected lines again.
    """
    findings = Findings()
    joined: Counter[str] = Counter()
    unmatched: Counter[str] = Counter()
    wrong = set()
    for output in outputs:
        for record in records(output / "joined"):
            click = record["event_id"]
            joined[click] += 1
            if not _right(record, click, truth):
                wrong.add(click)
        unmatched.update(record["event_id"] for record in records(output / "unmatched"))
        places = [tuple(record["source"].values()) for record in records(output / "rejected")]
        rejected = len(set(places) if output in forgotten else places)
        if rejected != truth.malformed:
            findings.problems.append(f"{truth.malformed} malformed lines, but {rejected} in {output / 'rejected'}")
        findings.rejected += rejected
    findings.joined, findings.unmatched = joined.total(), unmatched.total()
    verdicts = joined + unmatched
    findings.add("clicks lost", (truth.joined.keys() | truth.unmatched) - verdicts.keys())
    findings.add("clicks twice", (click for click, times in verdicts.items() if times > 1))
    findings.add("clicks invented", verdicts.keys() - truth.joined.keys() - truth.unmatched)
    findings.add("clicks joined without a query", joined.keys() & truth.unmatched)
    findings.add("clicks unmatched despite a query", unmatched.keys() & truth.joined.keys())
    findings.add("clicks joined wrongly", wrong)
    return findings


def _right(record: dict[str, Any], click: str, truth: Truth) -> bool:
    if truth.clicks and record["foreign"] != orjson.loads(truth.clicks.get(click, b"null")):
        return False
    query = truth.joined.get(click)
    return bool(record["primary"]["query_id"] == query and record["key"] == query)


def ledger_problems(ledgers: Mapping[str, Mapping[str, int]], truth: Truth) -> list[str]:
    """Checks ledgers: each must balance, and the verdicts of one count as elsewhere in the others."""
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
        problems += _differences(f"the ledger of {name} has", ledger, expected)
    total = {verdict: sum(ledger[verdict] for ledger in ledgers.values()) for verdict in ("joined", "unmatched")}
    expected = {"joined": len(truth.joined), "unmatched": len(truth.unmatched)}
    return problems + _differences("all ledgers together have", total, expected)


def _differences(who: str, found: Mapping[str, int], expected: Mapping[str, int]) -> list[str]:
    return [
        f"{who} {name} {found[name]:,}, but the truth is {count:,}"
        for name, count in expected.items()
        if found[name] != count
    ]
