"""Where a dispatcher begins to read: what logs held before it had a state of them, and how to set it back there.

Both are for whoever starts a pipeline, once. ``read_from`` counts only where nothing is known of any log: logs that
come later are read from their start, whenever that is. With ``ignore_checkpoints`` nothing is known: what was read
before is read again, and the registry recognises what has a verdict; ledger and retry store are kept.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from photon.adapters.contract import Adapter
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.process import Places
from photon.dispatcher.skipping import Skips, commit_skips, locked_state, plan_skips
from photon.dispatcher.state import Changes, State
from photon.idregistry.api import Digester


class Place(enum.Enum):
    """Of a log that is there at the start."""

    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True, slots=True)
class Beginning:
    """``read_from``: a place, or the first record of that event time (ns) or later."""

    read_from: Place | int = Place.BEGINNING
    ignore_checkpoints: bool = False


def begin(places: Places, join: str, adapter: Adapter, digester: Digester, beginning: Beginning) -> Skips | None:
    """Before the dispatcher opens its state. None: it goes on as its state says.

    A crash within it leaves all logs to be read from their start. Raises StateError, LogDirectoryError.
    """
    fresh = not (places.state / STATE_NAME).exists()
    if not beginning.ignore_checkpoints and (not fresh or beginning.read_from is Place.BEGINNING):
        return None
    with locked_state(places, join, adapter, digester, create=True) as state:
        assert state is not None
        if not fresh:
            _forget(state)
        if beginning.read_from is Place.BEGINNING:
            return Skips()
        to_ns = None if isinstance(beginning.read_from, Place) else beginning.read_from
        skips = plan_skips(places, adapter, digester, [], to_ns)
        commit_skips(state, skips)
        return skips


def _forget(state: State) -> None:
    back = {position.identity: replace(position, offset=0, proof=b"") for position in state.positions()}
    state.commit(Changes(positions=back, also=[("DELETE FROM parts", ())]))
