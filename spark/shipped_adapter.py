"""Sends an adapter to another process as plain data, from which it is rebuilt with the same settings and files.

Spark's executors need no access to the deployment's directory: the file of a one-file adapter with its
``data_files``, and the descriptors of protobuf logs, are sent with the settings that name them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import msgspec

from photon.adapters.contract import Adapter
from photon.adapters.entry_points import NAME
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.loader import SOURCE_BYTES_MAX, adapter_class_of
from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Duration, Join, Limits, Within

SIDES = ("primary", "foreign")


class AdapterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter settings of a join's table. Paths in the settings are names in ``files``."""

    join: str
    adapter: str | None = None
    options: dict[str, Any] = {}
    unmatched: Literal["apart", "inline"] = "apart"
    primary: dict[str, Any] | None = None
    foreign: dict[str, Any] | None = None
    shape: dict[str, Any] | None = None
    within: dict[str, float] | None = None
    match: Literal["first", "all", "latest"] = "first"
    time_limit_s: float  # of a call, as in ``limits.adapter_timeout``
    memory_limit: int  # bytes, as in ``limits.adapter_memory``
    files: dict[str, bytes] = {}  # relative path -> content


def adapter_spec(name: str, join: Join, base: Path, limits: Limits) -> AdapterSpec:
    """Returns the spec of a configured join; paths in the settings are relative to ``base``. Raises UsageError."""
    files: dict[str, bytes] = {}
    adapter = join.adapter
    if adapter is not None and NAME.fullmatch(adapter) is None:
        file, colon, class_name = adapter.rpartition(":")
        if file:
            taken = _taken(base / file, files)
            adapter = f"{taken}{colon}{class_name}"
            _take_data(join.adapter or "", base, Path(taken).parent, files)
    options = dict(join.options)
    for side in SIDES:
        if isinstance(options.get(side), Mapping):
            options[side] = _with_files(options[side], base, files)
    spec = AdapterSpec(
        join=name,
        adapter=adapter,
        options=options,
        unmatched=join.unmatched,
        primary=_with_files(join.primary, base, files),
        foreign=_with_files(join.foreign, base, files),
        shape=_with_files(join.shape, base, files, "hash_key_file"),
        within=_seconds(join.within),
        match=join.match,
        time_limit_s=float(limits.adapter_timeout),
        memory_limit=int(limits.adapter_memory),
        files=files,
    )
    if decoded(encoded(spec)) != spec:
        where = f"join.{name}.options"
        raise UsageError(f"{where}: has a value that is not JSON; use strings, numbers, lists and tables")
    return spec


def _seconds(within: Within | None) -> dict[str, float] | None:
    return None if within is None else {"before": float(within.before), "after": float(within.after)}


def _with_files(
    table: Mapping[str, Any] | None, base: Path, files: dict[str, bytes], setting: str = "descriptor"
) -> dict[str, Any] | None:
    if table is None or not isinstance(table.get(setting), str):
        return None if table is None else dict(table)
    return {**table, setting: _taken(base / table[setting], files)}


def _taken(path: Path, files: dict[str, bytes], name: str = "") -> str:
    """Adds a file and returns its name in the spec, which keeps the path's last part, as that names an adapter's
    module."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: is named in the join's settings, but cannot be read ({error.strerror})") from None
    if len(data) > SOURCE_BYTES_MAX:
        raise UsageError(f"{path}: is larger than {SOURCE_BYTES_MAX} bytes")
    name = name or f"{len(files)}/{path.name}"
    files[name] = data
    return name


def _take_data(adapter: str, base: Path, directory: Path, files: dict[str, bytes]) -> None:
    """Adds the adapter class's data files. Their names in the spec are below ``directory``, next to its own file."""
    file, _, class_name = adapter.rpartition(":")
    for name in adapter_class_of(adapter, base).data_files:
        if Path(name).name != name:
            raise UsageError(f"{class_name}.data_files: {name!r} is not the name of a file next to {file}")
        _taken((base / file).with_name(name), files, str(directory / name))


def encoded(spec: AdapterSpec) -> bytes:
    return msgspec.json.encode(spec)


def decoded(data: bytes) -> AdapterSpec:
    """Decodes a spec. Raises PhotonError."""
    try:
        return msgspec.json.decode(data, type=AdapterSpec)
    except DECODE_ERRORS as error:
        raise PhotonError(f"adapter settings: {error}; driver and executors run different releases") from None


def made(spec: AdapterSpec, directory: Path) -> Adapter:
    """Makes the adapter, once per process and spec, with its files written below ``directory``. Raises AdapterError,
    OSError."""
    return _made(encoded(spec), directory)


@lru_cache(maxsize=8)
def _made(data: bytes, directory: Path) -> Adapter:
    spec = decoded(data)
    base = directory / f"photon-adapter-{blake2b(data, digest_size=12).hexdigest()}"
    for name, content in spec.files.items():
        _put(base / name, content)
    join = Join(
        adapter=spec.adapter,
        options=spec.options,
        unmatched=spec.unmatched,
        primary=spec.primary,
        foreign=spec.foreign,
        shape=spec.shape,
        within=None if spec.within is None else Within(**{name: Duration(s) for name, s in spec.within.items()}),
        match=spec.match,
    )
    adapter = adapter_of_join(join, spec.join, base)
    adapter.time_limit_s, adapter.memory_limit = spec.time_limit_s, spec.memory_limit
    return adapter


def _put(path: Path, content: bytes) -> None:
    """Writes a file; safe if several processes of one machine do it at the same time."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
