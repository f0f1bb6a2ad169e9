"""The driver's report: like a dispatcher's (``photon.dispatcher.status``), whose work the driver does, with more
figures."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nlargest

from photon.adapters.logs.lag import WORST, Lag
from photon.config.clock import NS_PER_S
from photon.config.metrics.readings import Readings
from photon.dispatcher.ledger import UNKNOWN_HOUR, Ledger, LedgerLine
from photon.dispatcher.retry import SETTLED_NS
from photon.dispatcher.status import JoinTimes, OldRow, Pending, Status, oldest
from photon.spark.pipeline.driver import Driver
from photon.spark.pipeline.given_up import Search
from photon.spark.pipeline.journal import Rest
from photon.spark.pipeline.reading import read_rest
from photon.spark.pipeline.standing import ledger_of

PREFIX = "photon_spark"


@dataclass
class DriverReport:
    """The driver as an engine for ``photon.dispatcher.status``. Make it once the driver has begun. ``gone``: logs
    that were gone before they were read, one line each; ``search``: the search for ids that the registry gave up."""

    driver: Driver
    gone: list[str]
    search: Search

    @property
    def times(self) -> JoinTimes:
        return self.driver.times

    def __post_init__(self) -> None:
        self._began = self.driver.clock.monotonic(), self.line().read
        self._oldest: tuple[Rest, list[OldRow]] = Rest("", []), []

    def line(self) -> LedgerLine:
        return ledger_of(self.driver.counts, len(self.driver.waiting))

    def ledger(self) -> Ledger:
        """Returns the ledger. It has no hours, because commits have only totals."""
        line = self.line()
        return Ledger({UNKNOWN_HOUR: line}, line)

    def lag(self) -> Lag:
        known, behind = len(self.driver.listing.logs), self.driver.behind.values()
        oldest_ns = min((log.since_ns for log in behind), default=None)
        worst = nlargest(WORST, behind, key=lambda log: (-log.since_ns, log.bytes, log.path))
        return Lag(known, len(behind), sum(log.bytes for log in behind), oldest_ns, tuple(worst))

    def status(self) -> Status:
        driver, line, lag = self.driver, self.line(), self.lag()
        known = sum(log.size for log in driver.listing.logs)
        oldest_ns = next((first_ns for _, _, first_ns, _ in driver.waiting.oldest(1)), None)
        doubt = driver.listing.doubt
        return Status(
            read=line.read,
            verdicts=line.verdicts,
            reread=line.reread,
            wasted=0,
            retimed=0,
            bytes_read=known - lag.bytes,
            bytes_known=known,
            in_flight=int(driver.busy),
            stored=len(driver.waiting),
            stored_bytes=sum(driver.disk.size(driver.journal.waiting_path(name)) for name in driver.waiting.files),
            look_ups=0,
            attempts=driver.committed + 1,
            oldest_first_read_ns=oldest_ns,
            oldest_stored_ns=oldest_ns,
            caught_up=not lag.behind and not driver.busy,
            lag=lag,
            followed=driver.waiting.followed,
            reopened=len(self.search.open) + self.search.missing,
            reopened_missing=self.search.missing,
            unread=(*self.gone, *([doubt] if doubt else [])),
        )

    def oldest(self, limit: int) -> list[Pending]:
        """Returns the longest-waiting events, all from one file of waiting events."""
        rows = self.driver.waiting.oldest(limit)
        rest = Rest(rows[0][0] if rows else "", [row for _, row, _, _ in rows])
        now_ns = self.driver.clock.now_ns()
        if rest.rows and rest != self._oldest[0]:
            events, _ = read_rest(self.driver.journal, rest)
            self._oldest = rest, [
                OldRow(
                    (event := events.row(at)).event_id, event.event_time_ns, event.file.path, event.offset, first_ns,
                    1, again_ns, SETTLED_NS if event.event_time_ns > now_ns else 0,
                )
                for at, (_, _, first_ns, again_ns) in enumerate(rows)
            ]  # fmt: skip
        return oldest((), self._oldest[1] if rest.rows else [], now_ns, limit)

    @property
    def rate(self) -> float:
        """Events per second since the driver began."""
        at, read = self._began
        return (self.line().read - read) / max(self.driver.clock.monotonic() - at, 1.0)

    def put(self, into: Readings) -> None:
        """Adds the metrics that only a join on Spark has."""
        driver = self.driver
        into.put(f"{PREFIX}_batches_total", driver.committed + 1, join=driver.join)
        into.put(f"{PREFIX}_batch_seconds", driver.batch_s, join=driver.join)
        into.put(f"{PREFIX}_logs_gone_total", len(self.gone), join=driver.join)
        if (after_ns := driver.patience.unmatched_after_ns) is not None:
            bound = self.rate * (after_ns + driver.patience.slack_ns) / NS_PER_S
            into.put(f"{PREFIX}_waiting_bound_events", bound, join=driver.join)
