"""Which datacentre keeps whose copy. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def keeper_of(datacentre: str, keepers: Iterable[str]) -> str | None:
    """The next one in the order of names that keeps copies, after the last the first; None: there is no other.

    ``keepers``: datacentres with ``copies`` in their table. Another one that is added or removed may change who keeps
    whose: a slot's copy is then begun anew at the new place, and the old one stays where it is.
    """
    others = sorted(set(keepers) - {datacentre})
    later = [name for name in others if name > datacentre]
    return next(iter([*later, *others]), None)
