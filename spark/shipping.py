"""Ships Photon's own code to executors that lack it: the installed package as a zip, sent with the application.

Python cannot import from a wheel that ``addPyFile`` ships under its own name, but can from a zip. The zip has Python
sources and their compiled form; libraries with compiled parts that Photon needs must be installed
(docs/spark.md, Shipping).
"""

from __future__ import annotations

import os
import struct
import tempfile
import zipfile
from collections.abc import Sequence
from hashlib import blake2b
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path
from typing import TYPE_CHECKING

import photon
from photon.config.errors import PhotonError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_shipped: set[str] = set()  # applications of this process that have it
_EPOCH = (1980, 1, 1, 0, 0, 0)
_UNCHECKED = struct.pack("<L", 1)  # flag of compiled code that is used without checking its source
SOURCE_SUFFIXES = (".py", ".pyi", ".typed", ".proto", ".html", ".css", ".svg", ".json")


class ShippingFailed(PhotonError):
    """The package cannot be built. The message is one line."""


def ship(spark: SparkSession, py_files: Sequence[Path] = (), *, everywhere: bool = False) -> None:
    """Sends this Photon and the user's Python files to an application's executors, once per application.

    ``everywhere``: also to executors on this machine, because their Python is known to lack Photon. Raises
    ShippingFailed.
    """
    context = spark.sparkContext
    remote = everywhere or not _same_process(context.master or "local")
    if remote and context.applicationId not in _shipped and Path(photon.__file__).exists():
        # Executors fetch it from its place whenever they start: it must stay as long as the application.
        directory = Path(tempfile.mkdtemp(prefix="photon-ship-", dir=context._temp_dir))
        zipped = str(package_zip(directory))
        context.addPyFile(zipped)
        # Workers on the driver's machine that plan a stream or prepare its state do not get shipped files.
        known = context.environment.get("PYTHONPATH")
        context.environment["PYTHONPATH"] = zipped if known is None else os.pathsep.join((zipped, known))
        _shipped.add(context.applicationId)
    for path in py_files:
        if not path.is_file():
            raise ShippingFailed(f"{path}: no such file; name a .py, .zip or .egg")
        context.addPyFile(str(path))


def _same_process(master: str) -> bool:
    """True for ``local`` masters, whose executors run with the driver's Python and path."""
    return master == "local" or master.startswith("local[")


def package_zip(directory: Path) -> Path:
    """Makes ``photon-VERSION-HASH.zip`` of the installed package ``photon``; the same sources give the same name.

    Raises ShippingFailed.
    """
    root = Path(photon.__file__).parent
    files = sorted(path for path in _sources(root, root))
    if not any(name == "photon/__init__.py" for name, _ in files):
        raise ShippingFailed(f"{root}: has no __init__.py; install Photon again")
    digest = blake2b(digest_size=8)
    target = directory / "photon.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files:
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            if name.endswith(".py") and (code := _compiled(path, data)) is not None:
                archive.writestr(zipfile.ZipInfo(f"{name}c", _EPOCH), code, zipfile.ZIP_DEFLATED)
    named = directory / f"photon-{photon.__version__}-{digest.hexdigest()}.zip"
    target.rename(named)
    return named


def _compiled(path: Path, source: bytes) -> bytes | None:
    """Returns the compiled form of a module that was imported here. Without it, every Python process of Spark would
    compile a hundred modules. Other versions of Python ignore it."""
    try:
        code, stat = Path(cache_from_source(path)).read_bytes(), path.stat()
    except (OSError, NotImplementedError):
        return None
    fresh = MAGIC_NUMBER + struct.pack("<LLL", 0, int(stat.st_mtime) & 0xFFFFFFFF, stat.st_size & 0xFFFFFFFF)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + code[16:] if code.startswith(fresh) else None


def _sources(root: Path, directory: Path) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for path in directory.iterdir():
        if path.is_dir() and path.name != "__pycache__" and not path.name.startswith("."):
            found += _sources(root, path)
        elif path.is_file() and path.suffix in SOURCE_SUFFIXES:
            found.append((f"photon/{path.relative_to(root).as_posix()}", path))
    return found
