"""The adapter of a configured join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.contract import Adapter, AdapterError, Matching
from photon.adapters.entry_points import check_configured
from photon.adapters.loader import load_adapter
from photon.adapters.log_places import check_links_apart, check_logs_apart, secrets_of
from photon.adapters.shaping import shaped_adapter
from photon.adapters.side import check_links
from photon.config.errors import UsageError
from photon.config.settings import CONFIGURED, SIDES, Join, Settings
from photon.objects.paths import placed


def join_named(settings: Settings, name: str | None) -> str:
    """Returns ``name`` if the configuration has that join; without a name, the name of its only join."""
    known = ", ".join(sorted(settings.join)) or "none"
    if name is None:
        if len(settings.join) != 1:
            raise UsageError(f"the configuration has {len(settings.join)} joins ({known}); name one with --join")
        return next(iter(settings.join))
    if name not in settings.join:
        raise UsageError(f"join {name!r}: not in the configuration; there are: {known}")
    return name


def adapter_of(settings: Settings, name: str, base: Path) -> Adapter:
    """Loads a join's adapter; paths are relative to ``base``.

    Raises AdapterError, also if its pipelines' logs or links could lead to Photon's own files.
    """
    join = settings.join[name]
    adapter = adapter_of_join(join, name, base)
    secrets, links = secrets_of(settings, base), [*adapter.primary_links, *adapter.foreign_links]
    check_links_apart(f"join.{name}", links, secrets)
    for dc in settings.joining(name):
        pipeline, at = settings.datacentre[dc], f"datacentre.{dc}"
        own = {f"{at}.state": placed(base, pipeline.state), f"{at}.output": placed(base, pipeline.output)}
        check_links_apart(f"join.{name}", links, own)
        for side in SIDES:
            files = join.primary_files if side == "primary" else join.foreign_files
            check_logs_apart(f"{at}.{side}", placed(base, pipeline.logs(side)), files, secrets)
    if not adapter.has_foreign_time and settings.registry.retention is not None:
        raise AdapterError(
            "time is missing, and registry.retention is set",
            f"join.{name}.foreign",
            "remove registry.retention: without an event time, all ids would count as expired",
        )
    adapter.time_limit_s = float(settings.limits.adapter_timeout)
    adapter.memory_limit = settings.limits.adapter_memory
    return adapter


def adapter_of_join(join: Join, name: str, base: Path) -> Adapter:
    """Loads the adapter of the join ``name``; paths are relative to ``base``. Raises AdapterError."""
    if join.adapter == CONFIGURED:
        check_configured()
    if join.adapter is not None:
        adapter = load_adapter(join.adapter, join.options, base)
        adapter.primary_links = _links(join.primary, adapter.primary_links, f"join.{name}.primary")
        adapter.foreign_links = _links(join.foreign, adapter.foreign_links, f"join.{name}.foreign")
    else:
        options = {"primary": join.primary, "foreign": join.foreign, "where": f"join.{name}"}
        adapter = load_adapter(CONFIGURED, options, base)
    if not adapter.has_foreign_time:
        _check_without_time(join, f"join.{name}")
    if join.within is not None and join.match == "first":
        bounds = Bounds(join.within.before_ns, join.within.after_ns)
        adapter = bounded_adapter(adapter, bounds, f"join.{name}")
    if join.shape is not None:
        adapter = shaped_adapter(adapter, join.shape, f"join.{name}.shape", base)
    adapter.matching = _matching(join, adapter, f"join.{name}")
    adapter.unmatched_inline = _unmatched_inline(join, adapter, f"join.{name}")
    return adapter


def _links(side: Mapping[str, Any] | None, own: Sequence[str], where: str) -> Sequence[str]:
    """Returns the ``follow_links`` of a side read by code, else the adapter's own. Raises AdapterError."""
    given = (side or {}).get("follow_links", list(own))
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise AdapterError(f"follow_links = {given!r} is not possible", where, 'write ["/var/log/pods"]')
    check_links(given, where)
    return given


def _check_without_time(join: Join, where: str) -> None:
    """Raises AdapterError if a setting compares event times that the foreign records do not have."""
    settings = {"within": join.within, "written_within": join.written_within}
    used = [name for name, value in settings.items() if value is not None]
    used += ['match = "latest"'] if join.match == "latest" else []
    if used:
        todo = 'name the event time, for instance time = { field = "ts", unit = "ms" }, or remove these settings'
        raise AdapterError(f"time is missing in foreign, but needed for {' and '.join(used)}", where, todo)


def _unmatched_inline(join: Join, adapter: Adapter, where: str) -> bool:
    kind = type(adapter)
    joins_itself = kind.join is not Adapter.join and kind.unmatched_payload is Adapter.unmatched_payload
    if join.unmatched == "inline" and joins_itself:
        raise AdapterError(
            f'unmatched = "inline", but {kind.__name__} defines its own join',
            where,
            "define unmatched_payload too: the payload of a foreign event without a primary one",
        )
    return join.unmatched == "inline"


def _matching(join: Join, adapter: Adapter, where: str) -> Matching:
    within = join.within if join.match != "first" else None  # for ``first`` the adapter checks the bounds itself
    before_ns, after_ns = (None, None) if within is None else (within.before_ns, within.after_ns)
    matching = Matching(join.match, before_ns, after_ns)
    if matching.whole_sets and adapter.primary_duplicates != "first":
        raise AdapterError(
            f'primary_duplicates = {adapter.primary_duplicates!r} cannot be combined with match = "{join.match}"',
            where,
            "remove primary_duplicates: each primary event of a key counts",
        )
    if adapter.several_keys and join.match != "all":
        raise AdapterError(
            f'match = "{join.match}" cannot be combined with each in foreign.key',
            where,
            'write match = "all": such an event is joined with the primary events of all its keys',
        )
    if matching.needs_time and not adapter.has_primary_time:
        raise AdapterError(
            f'match = "{join.match}" needs the event time of primary records',
            where,
            "define primary_time in the adapter, or set primary.time",
        )
    return matching
