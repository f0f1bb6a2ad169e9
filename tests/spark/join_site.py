"""Two datacentres with the same growing logs, and the expected result of their join, without Photon's own code."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from photon.config.loader import load
from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Supervisor
from tests.deployments import addresses, datacentre, join, replica, write
from tests.integration.supervised import supervised

BASES = {"east": "", "west": "west/"}
PATIENCE_S = 8
WITHOUT = 50  # one click of this number names no query


@dataclass
class JoinSite:
    """``queries``: click -> the query that it must be joined with; None if there is none."""

    directory: Path
    random: Random
    queries: dict[str, str | None] = field(default_factory=dict)
    rejected: int = 0
    rolled: int = 0

    @property
    def file(self) -> Path:
        return self.directory / "photon.toml"

    def state(self, datacentre: str) -> Path:
        return self.directory / f"{BASES[datacentre]}state"

    def grow(self, clicks: int, *, delay_s: float = 0.0, text: int = 60) -> None:
        """Appends clicks, some of them twice, and their queries, to the logs of both datacentres; ``delay_s``: the
        queries come so much later."""
        lines, queries = [], []
        for _ in range(clicks):
            click = f"c{len(self.queries)}"
            query = f"q{click}" if self.random.randrange(WITHOUT) else None
            self.queries[click] = query
            record = {"id": click, "q": query or f"none-{click}", "t": int(time.time()) - 1, "text": "x" * text}
            lines += [json.dumps(record)] * (2 if self.random.random() < 0.02 else 1)
            if query is not None:
                queries.append(json.dumps({"q": query, "words": "w" * 20}))
        lines.append("not a record")
        self.rejected += 1
        self._append("clicks", lines)
        time.sleep(delay_s)
        self._append("queries", queries)

    def roll(self, what: str = "clicks", *, compress: bool) -> None:
        """Renames the logs of a side, or compresses what was renamed before."""
        for base in BASES.values():
            log = self.directory / f"{base}{what}" / "a.log"
            if compress:
                for path in log.parent.glob("a.log.[0-9]"):
                    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
                    path.unlink()
            else:
                log.rename(log.with_name(f"a.log.{self.rolled}"))
        self.rolled += not compress

    def _append(self, what: str, lines: Sequence[str]) -> None:
        for base in BASES.values():
            with (self.directory / f"{base}{what}" / "a.log").open("a") as file:
                file.writelines(f"{line}\n" for line in lines)

    @asynccontextmanager
    async def running(self, *kinds: str) -> AsyncIterator[Supervisor]:
        """Processes of these kinds, or of one datacentre, as ``dispatcher west``."""
        made = Deployment(self.file, load(self.file, environment={}), self.directory / "run")
        async with supervised(made) as supervisor:
            names = [each for each in made.services() if any(each.name.startswith(kind) for kind in kinds)]
            await supervisor.start(names)
            await supervisor.ready(120)
            yield supervisor

    # -- what became of it -----------------------------------------------------------------------------------------
    def lines(self, kind: str) -> list[dict[str, object]]:
        """Whole lines of a kind in both datacentres."""
        found = []
        for base in BASES.values():
            for path in sorted((self.directory / f"{base}output" / kind).glob("*")):
                data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
                found += [json.loads(line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]
        return found

    def missing(self) -> int:
        """Clicks without a line."""
        there = {line["event_id"] for kind in ("joined", "unmatched") for line in self.lines(kind)}
        return len(self.queries.keys() - there)

    def check(self, *, rejected_again: int = 0) -> None:
        """Each click is written once over both datacentres, with its query, or as one without. ``rejected_again``:
        bad records that a datacentre has read once more, on its way to Spark and back."""
        joined, unmatched = self.lines("joined"), self.lines("unmatched")
        times = Counter(line["event_id"] for line in joined + unmatched)
        assert {click: count for click, count in times.items() if count > 1} == {}
        assert times.keys() == self.queries.keys()
        pairs = {line["event_id"]: line["primary"]["q"] for line in joined}  # type: ignore[index]
        assert pairs == {click: query for click, query in self.queries.items() if query is not None}
        assert len(self.lines("rejected")) == 2 * self.rejected + rejected_again  # each datacentre rejects its own


def make_site(directory: Path, *, seed: int = 1) -> JoinSite:
    """Without any line yet."""
    free = addresses(11)
    services = ("eventstore", "dispatcher", "verifier", "spark")
    write(
        directory,
        join(f'unmatched_after = "{PATIENCE_S}s"', 'primary_max_delay = "1s"'),
        '[clock]\nuncertainty = "1s"\n',
        replica(next(free)),
        *(datacentre(free, *services, f"joiners.{name}-1", name=name, base=base) for name, base in BASES.items()),
    )
    for base in BASES.values():
        for what in ("queries", "clicks"):
            (directory / f"{base}{what}").mkdir(parents=True, exist_ok=True)
    return JoinSite(directory, Random(seed))
