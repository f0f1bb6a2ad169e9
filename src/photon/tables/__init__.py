"""Tables that transactions and observers keep up to date, after Google's Percolator (OSDI 2010).

``docs/tables.md`` (Inside) has the rules. The names exported here follow semantic versioning.
"""

from photon.tables.api import BadName, Conflict, OutcomeUnknown, StoreFailed, TablesError, TooOld
from photon.tables.loading import LoadedElsewhere
from photon.tables.observing import Worker, observer
from photon.tables.tables import Row, Snapshot, Table, Tables, retrying

__all__ = [
    "BadName",
    "Conflict",
    "LoadedElsewhere",
    "OutcomeUnknown",
    "Row",
    "Snapshot",
    "StoreFailed",
    "Table",
    "Tables",
    "TablesError",
    "TooOld",
    "Worker",
    "observer",
    "retrying",
]
