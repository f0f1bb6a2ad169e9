"""Two datacentres out of step: the one with the older file never calls an event unmatched whose primary event exists.

Real processes, for the changes of docs/operations/change-a-join.md in which the order of restarts would matter.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from photon.fleet.ledger import balances, read_ledger
from photon.lab.demo.check import records
from tests.deployments import addresses, datacentre, replica, write
from tests.integration.commands import photon, running, until
from tests.integration.forked import Process

CLICKS, NEVER = 20, 5  # half of the clicks have their query where the old file does not look, and ``NEVER`` have none
PATIENCE_S, UNCERTAINTY_S = 1.0, 0.5
TRIED_S = 3.0  # a joiner is asked for a verdict well within this time after patience has ended
WAIT_S = 120.0
T = 1_760_000_000
JOIN = """
[join.clicks]
{join}
[join.clicks.primary]
format = "jsonl"
key = "q"
time = {{ field = "t", unit = "s" }}
{primary}
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "id"
time = {{ field = "t", unit = "s" }}
[clock]
uncertainty = {uncertainty}
"""
PATIENCE = f'unmatched_after = "{PATIENCE_S}s"'


@dataclass(frozen=True)
class Change:
    """The old and the new lines of the join's table, and of its primary side."""

    join: tuple[str, str] = (PATIENCE, PATIENCE)
    primary: tuple[str, str] = ("", "")
    late_s: int = 0  # seconds by which a hidden query's event time is later
    never: int = NEVER


CHANGES = {
    "primary_files": Change((f'{PATIENCE}\nprimary_files = ["q.log"]', f'{PATIENCE}\nprimary_files = ["*.log"]')),
    "follow_links": Change(primary=("", 'follow_links = ["{elsewhere}"]')),
    "within": Change(
        (f'{PATIENCE}\nwithin = {{ before = "1s" }}', f'{PATIENCE}\nwithin = {{ before = "1s", after = "1s" }}'),
        late_s=1,
    ),
    "unmatched_after": Change((PATIENCE, 'unmatched_after = "1h"'), never=0),
}
STARTS_AGAIN = ("primary_files", "within")


class Site:
    """A registry and two datacentres, each a process with its own file."""

    def __init__(self, base: Path, change: Change) -> None:
        self.base, self.change = base, change
        self.elsewhere = base / "elsewhere"
        self.elsewhere.mkdir()
        free = addresses(7)
        texts = [replica(next(free))]
        for name in ("east", "west"):
            for logs in ("queries", "clicks"):
                (base / name / logs).mkdir(parents=True)
            texts.append(datacentre(free, name=name, base=f"{name}/", whole=True))
        for at, age in enumerate(("old", "new")):
            join, primary = change.join[at], change.primary[at].format(elsewhere=self.elsewhere)
            joined = JOIN.format(join=join, primary=primary, uncertainty=f'"{UNCERTAINTY_S}s"')
            write(base, joined, *texts).rename(base / f"{age}.toml")

    @contextmanager
    def started(self, name: str, age: str) -> Iterator[Process]:
        """A serving datacentre with the file of that age."""
        place = self.base / name
        begun = self.said(name, "dispatcher serves")
        command = ("serve", "datacentre", name, "--config", self.base / f"{age}.toml")
        with running(*command, log=place / "log") as process:
            until(lambda: self.said(name, "dispatcher serves") > begun, WAIT_S, f"{name} serves")
            yield process

    def said(self, name: str, text: str) -> int:
        log = self.base / name / "log"
        return log.read_text().count(text) if log.exists() else 0

    def queries(self, numbers: range, log: str, late_s: int = 0) -> None:
        for name in ("east", "west"):
            lines = "".join(f'{{"q":"q{n}","t":{T + n + late_s}}}\n' for n in numbers)
            path = self.base / name / "queries" / log
            path = self.elsewhere / name / log if log == "link.log" else path
            path.parent.mkdir(exist_ok=True)
            with path.open("a") as file:
                file.write(lines)
            if log == "link.log":
                (self.base / name / "queries" / log).symlink_to(path)

    def clicks(self, name: str) -> None:
        total = CLICKS + self.change.never
        lines = "".join(f'{{"id":"c{n}","q":"q{n}","t":{T + n}}}\n' for n in range(total))
        (self.base / name / "clicks" / "c.log").write_text(lines)

    def ledger(self, name: str) -> dict[str, int]:
        return read_ledger(self.base / name / "state")

    def written(self, kind: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for name in ("east", "west"):
            found.update(record["event_id"] for record in records(self.base / name / "output" / kind))
        return found


def stop(process: Process) -> None:
    process.terminate()
    assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize(
    ("name", "again"), [*((name, False) for name in CHANGES), *((name, True) for name in STARTS_AGAIN)]
)
def test_no_event_is_unmatched_whose_primary_is_there(tmp_path: Path, name: str, again: bool) -> None:
    """``again``: the old datacentre is killed and restarts with its old file after the other has the new one."""
    site = Site(tmp_path, CHANGES[name])
    hidden = {"primary_files": "more.log", "follow_links": "link.log"}.get(name, "q.log")
    half = CLICKS // 2
    site.queries(range(half), "q.log")
    if name != "unmatched_after":
        site.queries(range(half, CLICKS), hidden, CHANGES[name].late_s)
    with ExitStack() as running_now:
        start = running_now.enter_context
        start(running("serve", "registry", "r1", "--config", tmp_path / "old.toml", log=tmp_path / "registry.log"))
        west, east = start(site.started("west", "old")), start(site.started("east", "old"))
        stop(east)
        start(site.started("east", "new"))
        if again:
            west.kill()
            west.wait()
            west = start(site.started("west", "old"))
        until(
            lambda: site.said("west", "no event is declared unmatched for now"),
            WAIT_S,
            "west knows that its file is old",
        )
        site.clicks("west")
        total = CLICKS + site.change.never
        until(lambda: site.ledger("west")["joined"] == half, WAIT_S, "west joins what it can")
        time.sleep(PATIENCE_S + UNCERTAINTY_S + TRIED_S)
        ledger = site.ledger("west")
        assert (ledger["joined"], ledger["pending"], ledger["unmatched"]) == (half, total - half, 0)
        assert not site.written("unmatched")
        doctor = photon("doctor", "--config", tmp_path / "old.toml")
        assert f"currently declares no event unmatched: {name}: " in doctor.out + doctor.err
        if name == "unmatched_after":
            site.queries(range(half, CLICKS), "q.log")
        if again:
            stop(west)
            start(site.started("west", "new"))
        else:
            site.clicks("east")
        until(lambda: len(site.written("joined")) == CLICKS, WAIT_S, "all that have a query are joined")
        until(lambda: len(site.written("unmatched")) == site.change.never, WAIT_S, "the others are unmatched")
        if again:
            until(lambda: not site.ledger("west")["pending"], WAIT_S, "nothing is left")
        assert balances(site.ledger("west"))
    assert site.written("joined") == {f"c{n}": 1 for n in range(CLICKS)}
    assert site.written("unmatched") == {f"c{n}": 1 for n in range(CLICKS, total)}
