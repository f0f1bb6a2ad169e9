"""Ids that the registry gave up (protocol rule 14), found again in the logs of this datacentre.

They stay on the registry's list until somebody has registered them again: it is the memory of that work. Nothing
is remembered of which log holds them, so all are read, by a reread (``rereading``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from photon.batch.columns import split_digests
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core.outcomes import Refusal
from photon.spark.pipeline.driver import Driver
from photon.spark.pipeline.journal import GivenUp, Reread

PERIOD_S = 30.0  # between two readings of the list
ASK_S = 5.0
LISTED_MAX = 200_000  # ids of one reading: the others are read once these have a verdict
SEARCH_IDS = 20_000  # searched for at once: each task reads them
AGAIN_FIRST_S, AGAIN_MOST_S = 60.0, 6 * 3600.0  # until an id is searched for again


@dataclass(slots=True)
class _Looked:
    times: int
    next_s: float


@dataclass
class Search:
    """Decides which of the ids on the registry's list are searched for next. Pure; the times are monotonic seconds.

    First only the line counts that was registered before, then any with that id, and then more and more seldom.
    """

    missing: int = 0  # ids on the list that are in no log here
    open: Sequence[GivenUp] = ()  # the others on the list
    _looked: dict[tuple[bytes, int], _Looked] = field(default_factory=dict)

    def next(self, listed: Sequence[GivenUp], waiting: frozenset[bytes], now: float, now_ns: int) -> Reread | None:
        """``listed``: the whole list; ``waiting``: digests of ids that were found and have no verdict yet. Call it
        when no search is under way."""
        names = {(each.digest, each.generation) for each in listed}
        self._looked = {name: looked for name, looked in self._looked.items() if name in names}
        left = [each for each in listed if each.digest not in waiting]
        found = [(each, self._looked.get((each.digest, each.generation))) for each in left]
        gone = {id(each) for each, looked in found if looked is not None and looked.times > 1}
        self.missing, self.open = len(gone), [each for each in listed if id(each) not in gone]
        fresh = [each for each, looked in found if looked is None]
        ids = (fresh or [each for each, looked in found if looked is not None and looked.next_s <= now])[:SEARCH_IDS]
        for each in ids:
            looked = self._looked.setdefault((each.digest, each.generation), _Looked(0, now))
            looked.next_s = now + min(AGAIN_FIRST_S * 2**looked.times, AGAIN_MOST_S)
            looked.times += 1
        return Reread(asked_ns=now_ns, ids=ids, any_line=not fresh) if ids else None


async def look(registry: Recovery, driver: Driver, search: Search) -> None:
    """Orders a search for the ids on the list, unless one is under way or the list is not known.

    Raises JournalDamaged, OSError.
    """
    if (listed := await _listed(registry)) is None or driver.journal.is_searching():
        return
    clock = driver.clock
    wanted = search.next(listed, driver.waiting.given_up(), clock.monotonic(), clock.now_ns())
    if wanted is not None:
        driver.journal.ask_reread(wanted)
    driver.given_up = search.open


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
