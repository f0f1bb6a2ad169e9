"""Finds the event ids behind digests in the foreign logs on this machine.

It works like a dispatcher's search for reopened ids (``photon.dispatcher.replay.reopened``): the chunks of its logs
that may cover the times are read again through the adapter. An id in no log here stays a digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from photon.adapters.contract import Adapter
from photon.adapters.join_adapters import adapter_of
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.dispatcher import database
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.partitions import there
from photon.dispatcher.replay.coverage import Chunk, chunks_between, holding, read_up_to
from photon.dispatcher.replay.reading import LogFiles
from photon.idregistry.api import DIGEST_BYTES, Digester
from photon.idregistry.core.scans import EntryPage
from photon.joiner.foreign_columns import events_of, records_of
from photon.objects.paths import placed


@dataclass(slots=True)
class _Site:
    state: Path
    logs: LogFiles


class Resolver:
    """Resolves digests with the foreign logs of one join, which stay open until ``opened`` ends."""

    def __init__(self, sites: list[_Site], adapter: Adapter, digester: Digester) -> None:
        self._sites = sites
        self._adapter = adapter
        self._digester = digester
        self.problems: list[str] = []  # datacentres whose logs are unreadable, a line each

    async def resolve(self, page: EntryPage) -> Mapping[bytes, bytes]:
        """Returns digest -> event id for the digests that were found."""
        size = DIGEST_BYTES
        wanted = {page.digests[size * at : size * (at + 1)] for at in range(len(page))}
        found: dict[bytes, bytes] = {}
        for site in list(self._sites):
            try:
                await self._look(site, page, wanted, found)
            except (PhotonError, OSError) as error:
                self.problems.append(str(error))
                self._sites.remove(site)
            if len(found) == len(wanted):
                break
        return found

    async def _look(self, site: _Site, page: EntryPage, wanted: set[bytes], found: dict[bytes, bytes]) -> None:
        with database.opened(site.state) as db:
            first, last = int(page.times.min()), int(page.times.max())
            chunks = holding(chunks_between(db, read_up_to(db), first, last + 1), page.times)
        for chunk in chunks:
            await self._read(site, chunk, wanted, found)
            if len(found) == len(wanted):
                return

    async def _read(self, site: _Site, chunk: Chunk, wanted: set[bytes], found: dict[bytes, bytes]) -> None:
        for block in await site.logs.blocks(chunk) or ():
            events = events_of(block, *records_of(block), self._adapter, self._digester).events
            size = DIGEST_BYTES
            digests = np.frombuffer(events.digests, f"V{size}").tolist()
            found.update((d, events.ids[at]) for at, d in enumerate(digests) if d in wanted)


@contextmanager
def opened(settings: Settings, base: Path, join: str, digester: Digester) -> Iterator[Resolver]:
    """Opens a resolver over all datacentres of the join, if any, whose dispatcher's state and logs are on this
    machine."""
    adapter = adapter_of(settings, join, base)
    with ExitStack() as stack:
        sites = []
        for pipeline in settings.datacentre.values():
            state = base / pipeline.state / STATE_NAME
            if pipeline.join != join or not there(state) or not placed(base, pipeline.foreign).is_dir():
                continue
            logs = LogFiles(
                placed(base, pipeline.foreign),
                settings.join[join].foreign_files,
                has_header=adapter.foreign_has_header,
                max_record=settings.limits.record,
                framing=adapter.foreign_framing,
                links=adapter.foreign_links,
            )
            stack.callback(logs.close)
            sites.append(_Site(state, logs))
        yield Resolver(sites, adapter, digester)
