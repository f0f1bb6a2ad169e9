"""Finds ids that the registry gave up (protocol rule 14) in the logs of this datacentre.

They stay on the registry's list until they are registered again. Their logs are unknown, so all logs are read, by a
reread (``rereading``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from photon.batch.columns import split_digests
from photon.config.back_off import BackOff
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core.outcomes import Refusal
from photon.spark.pipeline.driver import Driver
from photon.spark.pipeline.journal import GivenUp, Reread

PERIOD_S = 30.0  # between two readings of the list
ASK_S = 5.0
LISTED_MAX = 200_000  # ids of one reading: more are read once these have a verdict
SEARCH_IDS = 20_000  # ids of one search, read by each task
AGAIN = BackOff(first=60.0, most=6 * 3600.0)  # pause before an id is searched for again


@dataclass(slots=True)
class _Looked:
    times: int
    next_s: float
    is_gone: bool = False  # it is in no log here


@dataclass
class Search:
    """Chooses the ids on the registry's list to search for next. Pure; times are in monotonic seconds.

    Searches first only for the line that was registered before, then for any line with the id, at growing intervals.
    """

    missing: int = 0  # ids on the list that are in no log here
    open: Sequence[GivenUp] = ()  # the list's other ids
    _looked: dict[tuple[bytes, int], _Looked] = field(default_factory=dict)

    def next(
        self, listed: Sequence[GivenUp], waiting: frozenset[bytes], now: float, now_ns: int, *, free: bool
    ) -> Reread | None:
        """Returns the next search for given-up ids, if one is due.

        ``listed``: the whole list; ``waiting``: digests of found ids without a verdict yet; ``free``: all logs have
        been read, and no search is in progress."""
        names = {(each.digest, each.generation) for each in listed}
        self._looked = {name: looked for name, looked in self._looked.items() if name in names}
        left = [each for each in listed if each.digest not in waiting]
        found = [(each, self._looked.get((each.digest, each.generation))) for each in left]
        if free:
            for looked in self._looked.values():
                looked.is_gone = looked.times > 1
        gone = {id(each) for each, looked in found if looked is not None and looked.is_gone}
        self.missing, self.open = len(gone), [each for each in listed if id(each) not in gone]
        fresh = [each for each, looked in found if looked is None]
        ids = (fresh or [each for each, looked in found if looked is not None and looked.next_s <= now])[:SEARCH_IDS]
        if not (ids and free):
            return None
        for each in ids:
            looked = self._looked.setdefault((each.digest, each.generation), _Looked(0, now))
            looked.next_s = now + (AGAIN.delay(looked.times + 1) if looked.times else 0.0)
            looked.times += 1
        return Reread(asked_ns=now_ns, ids=ids, any_line=not fresh)


async def look(registry: Recovery, driver: Driver, search: Search) -> bool:
    """Orders a search for the ids on the list. Returns True if it did.

    It orders none while a search is in progress, the list is unknown, or logs are not fully read, as an id may be in
    their unread part. Raises JournalDamaged, OSError.
    """
    if (listed := await _listed(registry)) is None:
        return False
    clock, journal = driver.clock, driver.journal
    free = bool(driver.listing.seen_ns) and not driver.behind and not journal.is_searching()
    wanted = search.next(listed, driver.waiting.given_up(), clock.monotonic(), clock.now_ns(), free=free)
    if wanted is not None:
        journal.ask_reread(wanted)
    driver.given_up = search.open
    return wanted is not None


async def _listed(registry: Recovery) -> list[GivenUp] | None:
    shards, found = await registry.shards(timeout=ASK_S), list[GivenUp]()
    for shard in shards:
        cursor = b""
        while len(found) < LISTED_MAX:
            page = await registry.scan_reopened(shard, cursor=cursor, timeout=ASK_S)
            if isinstance(page, Refusal):
                return None
            columns = (page.generations.tolist(), page.times.tolist(), page.tags.tolist())
            found += map(GivenUp, split_digests(page.digests), *columns)
            if not (cursor := page.cursor):
                break
    return found if shards else None
