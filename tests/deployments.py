"""Deployment files of tests: texts of a join of two kinds of lines, of a registry, and of datacentres
with a pipeline each, to be put together into one file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from photon.supervision.ports import free_ports


def addresses(count: int) -> Iterator[str]:
    """Where nothing listens."""
    return iter([f"127.0.0.1:{port}" for port in free_ports(count)])


def join(
    *settings: str, key: str = "q", event_id: str = "id", time: str = "t", unit: str = "s", foreign: str = "jsonl"
) -> str:
    """``settings``: further lines of the join's table; ``event_id`` empty: lines carry no id, ``time`` likewise;
    ``foreign``: format."""
    lines = ["[join.clicks]", *settings] if settings else []
    lines += ["[join.clicks.primary]", 'format = "jsonl"', f'key = "{key}"']
    lines += ["[join.clicks.foreign]", f'format = "{foreign}"', f'key = "{key}"']
    lines += [f'id = "{event_id}"'] if event_id else []
    return "\n".join([*lines, f'time = {{ field = "{time}", unit = "{unit}" }}\n' if time else "\n"])


def replica(address: str, name: str = "r1") -> str:
    return f'[registry.replicas.{name}]\naddress = "{address}"\ndirectory = "{name}"\ndatacentre = "east"\n'


def datacentre(
    free: Iterator[str], *services: str, name: str = "east", base: str = "", more: str = "", whole: bool = False
) -> str:
    """Each part is apart, unless it is ``whole``. ``services``: those that take their address from ``free``, and
    ``joiners.NAME`` or ``caches.NAME`` for each of several; ``base``: of its directories, with a slash; ``more``:
    further lines."""
    on_spark = 'pipeline = "spark"' in more
    apart: dict[str, list[str]] = {}
    for each in services:
        part = {"joiners": "joiner", "caches": "cache"}.get(each.partition(".")[0], each)
        part = "spark" if on_spark and each == "dispatcher" else part
        apart.setdefault(part, []).append(next(free))
    others = () if whole else ("eventstore", "verifier", *(() if on_spark else ("dispatcher",)))
    for part in others:
        apart.setdefault(part, [f"127.0.0.1:{port}" for port in free_ports(1)])
    lines = [f"[datacentre.{name}]", 'join = "clicks"', f'primary = "{base}queries"', f'foreign = "{base}clicks"']
    lines += [f'output = "{base}output"', f'state = "{base}state"', more]
    lines += [f'address = "{next(free)}"\nstatus = ""'] if whole else [f"joiners = {len(apart.get('joiner', ()))}"]
    lines += [f"apart.{part} = {at if len(at) > 1 else at[0]!r}" for part, at in apart.items()]
    return "\n".join([*lines, ""])


def deployment(base: Path, joined: str, *services: str, more: str = "", top: str = "", replicas: int = 1) -> Path:
    """Of one datacentre, ``base/photon.toml``, with the key and the directories of both logs. ``more``: further lines
    of the datacentre's table, ``top``: further tables."""
    free = addresses(replicas + len(services))
    registry = "".join(replica(next(free), f"r{number}") for number in range(1, replicas + 1))
    return write(base, joined, registry, datacentre(free, *services, more=more), top)


def write(base: Path, *texts: str) -> Path:
    for name in ("queries", "clicks"):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / "key").write_bytes(b"k" * 32)
    file = base / "photon.toml"
    file.write_text('key_file = "key"\n' + "".join(texts))
    return file
