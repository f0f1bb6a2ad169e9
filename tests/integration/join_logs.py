"""A seeded stream of queries and clicks as log directories, joined by the real command, and checked against the
truth."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from photon.fleet.ledger import balances
from photon.lab.demo.check import check, records
from photon.lab.demo.generator import Disorder, Generator, Line
from tests.deployments import join
from tests.integration.commands import Result, photon
from tests.integration.forked import Process, begin

CONFIG = join(key="query_id", event_id="click_id", time="time_us", unit="us")


# Counts outside the balance; the first two depend on the moment of a kill.
APART = {"reread", "wasted", "retimed", "ambiguous", "unpaired"}


@dataclass(slots=True)
class Following:
    """A ``photon join`` that follows the logs; its output goes to files."""

    process: Process
    out: Path
    err: Path

    def interrupt(self, timeout: float = 30.0) -> Result:
        """Ctrl-C; returns its output until its end."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout)
        return Result(code, self.out.read_text(), self.err.read_text())

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()


class Logs:
    """Two log directories that are filled piece by piece, an output, a configuration, and the truth."""

    def __init__(self, base: Path, *, clicks: int = 200, seed: int = 1, disorder: Disorder | None = None) -> None:
        self.base, self.primary, self.foreign = base, base / "queries", base / "clicks"
        self.output, self.config = base / "out", base / "join.toml"
        self.config.write_text(CONFIG)
        self.primary.mkdir()
        self.foreign.mkdir()
        disorder = disorder or Disorder(unmatched=0.1, duplicated=0.1, malformed=0.02, before_query=0.0)
        generator = Generator(seed, clicks=clicks, seconds=5.0, queries_per_click=3, disorder=disorder)
        self.lines: list[Line] = sorted(generator.lines(), key=lambda line: line.at_us)
        self.truth = generator.truth
        self._written = 0

    def write(self, share: float = 1.0) -> None:
        """Appends lines until this share of all is there."""
        to = round(len(self.lines) * share)
        for name, side in ((self.primary / "queries.log", True), (self.foreign / "clicks.log", False)):
            with name.open("ab") as file:
                file.write(b"".join(line.data for line in self.lines[self._written : to] if line.primary is side))
        self._written = max(to, self._written)

    def arguments(self, *more: str | Path, config: bool = True) -> list[str | Path]:
        base: list[str | Path] = [
            "join",
            "--primary",
            self.primary,
            "--foreign",
            self.foreign,
            "--output",
            self.output,
        ]
        return [*base, *(("--config", self.config) if config else ()), *more]

    def once(self, *more: str | Path, config: bool = True) -> Result:
        return photon(*self.arguments("--once", "-o", "json", *more, config=config))

    @contextlib.contextmanager
    def following(self, *more: str | Path) -> Iterator[Following]:
        """Follows in the background; killed at the end if it still runs."""
        out, err = self.base / "stdout", self.base / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = begin(*self.arguments("-o", "json", *more), stdout=stdout, stderr=stderr)
        try:
            yield Following(process, out, err)
        finally:
            process.kill()
            process.wait()

    def joined(self) -> int:
        """Records in the joined log now."""
        return sum(1 for _ in records(self.output / "joined"))

    def joinable(self) -> int:
        """Clicks among the written lines whose query is also written."""
        written = self.lines[: self._written]
        queries = {line.data.split(b'"', 4)[3] for line in written if line.primary}
        clicks = {line.data for line in written if not line.primary and line.data.count(b'"') > 8}
        return sum(data.split(b'"', 8)[7] in queries for data in clicks)

    def finish(self, *more: str | Path) -> dict[str, int]:
        """The rest of the lines, and a last run: everything is exact. Returns the ledger."""
        self.write()
        result = self.once("--max-rejected", "1000", *more)
        assert result.code == 0, result.err
        self.exact(result.json)
        return result.json

    def exact(self, ledger: dict[str, int]) -> None:
        """Each click exactly once with the right contents, and a matching ledger."""
        assert check([self.output], self.truth).problems == []
        truth = self.truth
        assert balances(ledger)
        assert {name: ledger[name] for name in ledger.keys() - APART} == {
            "read": truth.lines,
            "joined": len(truth.joined),
            "filtered": 0,
            "unmatched": len(truth.unmatched),
            "late": 0,
            "rejected": truth.malformed,
            "elsewhere": 0,
            "duplicate": truth.duplicates,
            "pending": 0,
        }
