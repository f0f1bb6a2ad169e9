"""Loads a topology from its file, and finds the inputs that it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from photon.adapters.side import side_from_table
from photon.computing.injector import OF_DIRECTORY, Said
from photon.computing.log_input import LogPlace
from photon.computing.replay import begin, current
from photon.computing.shared import read_place
from photon.computing.site import Reads, Site
from photon.computing.table import SPARK_NAME
from photon.computing.topology import Source, Topology
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.python_file import load_python
from photon.config.tls import OPERATOR
from photon.config.topic_address import is_topic, topic_address
from photon.fleet.access import output_here, tls_of
from photon.fleet.watermarks import VerifierTail
from photon.objects.paths import placed
from photon.outputs.output_places import KINDS, OutputPlace


def load_topology(file: Path) -> Topology:
    """Returns the topology that a Python file names ``topology``, or the only one in it.

    Raises UsageError, with the line of the file.
    """
    module = load_python(file, "computations")
    found = [each for each in vars(module).values() if isinstance(each, Topology)]
    chosen = getattr(module, "topology", found[0] if len(found) == 1 else None)
    if not isinstance(chosen, Topology):
        raise UsageError(f"{file}: has no `topology`: assign the photon.computing.Topology to run to this name")
    chosen.checked()
    return chosen


def site_of(file: Path, state: Path | None = None) -> Site:
    """Loads a topology and opens its state; `None` means the default directory next to the file. Raises
    UsageError."""
    topology = load_topology(file)
    state = current(RealDisk(), state or default_state(file, topology))
    return Site(topology, file.resolve().parent, state, reads_of, load=lambda: load_topology(file))


def begin_replay(file: Path, state: Path | None, name: str, from_ns: int | None) -> Path:
    """Returns the state directory of a replay, creating it if missing. Raises UsageError."""
    topology = load_topology(file)
    first = state or default_state(file, topology)
    if (first / SPARK_NAME).exists() or read_place(RealDisk(), first) is not None:
        raise UsageError(f"{first}: a state on Spark or in HBase cannot be replayed: use a new --state, "
                         "publishing elsewhere")  # fmt: skip
    return begin(RealDisk(), first, name, from_ns)


def default_state(file: Path, topology: Topology) -> Path:
    return file.parent / ".photon-compute" / topology.name


def reads_of(source: Source, base: Path, upstream: Path) -> Reads | LogPlace:
    """Returns the input of a source. ``upstream``: directory for files copied from a topic. Raises UsageError."""
    options = source.options
    if (log := options.get("log")) is not None:
        side = side_from_table(options["side"], f"the log {source.stream}", foreign=True)
        read = side, options["files"], base, options["within_ns"], options["idle_after_ns"]
        client = options["kafka_client"]
        if is_topic(log):
            topic = topic_address(log, f"the log {source.stream}")
            return LogPlace(upstream, *read, topic, None if client is None else base / client)
        if client is not None:
            raise UsageError(f"the log {source.stream}: kafka_client requires kafka://HOST:PORT/TOPIC, not {log}")
        return LogPlace(placed(base, log), *read)
    places, kinds = places_of(source, base)
    return Reads(places, kinds, lambda tell: said_elsewhere(source, base, places, kinds, tell))


def places_of(source: Source, base: Path) -> tuple[dict[str, OutputPlace], tuple[str, ...]]:
    """Returns the outputs that a source reads, by name, and the kinds of records. Raises UsageError."""
    named = source.options.get("deployment")
    if "log" in source.options:
        raise UsageError(f"the stream {source.stream} is a log: Spark reads published output; photon compute run "
                         "without --on spark reads logs")  # fmt: skip
    if not isinstance(named, str):
        raise UsageError(f"the stream {source.stream} has no source: make it with Topology.joined")
    kinds = tuple(source.options.get("kinds", ("joined",)))
    if unknown := set(kinds) - set(KINDS):
        raise UsageError(
            f"the stream {source.stream}: unknown kind {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}"
        )
    path = base / named
    if path.suffix != ".toml":
        return {OF_DIRECTORY: OutputPlace.of_join(path)}, kinds
    settings = load(path, environment=os.environ)
    joins = sorted({each.join for each in settings.datacentre.values()})
    join = source.options.get("join") or (joins[0] if len(joins) == 1 else None)
    if join not in joins:
        raise UsageError(
            f"{path}: its joins are {', '.join(joins) or 'none'}; choose one: Topology.joined(…, join=NAME)"
        )
    found = [name for name, each in settings.datacentre.items() if each.join == join]
    return {name: output_here(settings, path.parent, name) for name in found}, kinds


def said_elsewhere(
    source: Source, base: Path, places: Mapping[str, OutputPlace], kinds: Sequence[str], tell: Callable[[str], None]
) -> dict[str, Said]:
    """Returns functions that ask a verifier for its watermark, one for each place whose state is on another machine.
    They use the operator's certificate, and call ``tell`` if the verifier does not answer. Raises UsageError."""
    path = base / str(source.options["deployment"])
    apart = [name for name, place in places.items() if not place.state.is_dir()]
    if path.suffix != ".toml" or not apart:
        return {}
    settings = load(path, environment=os.environ)
    tls = tls_of(settings, path.parent, OPERATOR)
    return {name: VerifierTail(settings, name, tls, kinds, tell).moved for name in apart}
