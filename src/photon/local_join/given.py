"""Resolves ``--primary`` and ``--foreign``: a directory, one log, a glob, or standard input.

Log readers see a side as a directory with patterns. A *log* is a file with its rolled and compressed successors, so
that nothing is lost if they appear between two runs. A glob selects only the files that it matches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from photon.adapters.logs.discovery import check_directory, compile_patterns, discover
from photon.adapters.logs.identity import COMPRESSED_SUFFIXES
from photon.adapters.logs.problems import UNREAD, LogDirectoryError, ProblemKind, ProblemReporter
from photon.adapters.logs.reader import open_source
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath

STDIN = Path("-")
ALL = ("**/*",)
_SPECIAL = re.compile(r"[*?[]")
_MAGIC = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz"}
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Given:
    """A side's logs. ``patterns``: `None` means the patterns in the configuration."""

    directory: Path
    patterns: tuple[str, ...] | None = None
    links: tuple[str, ...] = ()  # directory of the link's target, if the user gave a link

    def may_hold(self, directory: Path) -> bool:
        """Returns True if files in this directory would be read as logs."""
        real = self.directory.resolve()
        if not directory.is_relative_to(real):
            return False
        patterns = compile_patterns(self.patterns or ALL)
        parts = directory.relative_to(real).parts
        return all(patterns.reach("/".join(parts[:end])) for end in range(1, len(parts) + 1))


def given(side: str, path: Path) -> Given:
    """Resolves a path or a glob. Raises UsageError, LogDirectoryError."""
    if isinstance(path, ObjectPath):
        return _objects(side, path)
    try:
        return _files(side, path)
    except OSError as err:
        raise UsageError(
            f"--{side} {path}: cannot be examined ({err.strerror}); make its directory readable for this user"
        ) from None


def _files(side: str, path: Path) -> Given:
    """Returns the log files selected by a directory, file or glob. Raises UsageError, LogDirectoryError, OSError."""
    if path.is_dir():
        return Given(path)
    if path.is_file():
        real = path.resolve().parent
        return Given(path.parent, _log_patterns(path.name), () if real == path.parent.resolve() else (str(real),))
    if path.exists():
        raise UsageError(
            f"--{side} {path}: is neither a directory nor a file; to read a pipe, use - for standard input"
        )
    if not _SPECIAL.search(str(path)):
        raise UsageError(
            f"--{side} {path}: no such directory or file; give the directory of the {side} logs, a file or a glob"
        )
    parts = path.parts
    fixed = next(place for place, part in enumerate(parts) if _SPECIAL.search(part))
    directory = Path(*parts[:fixed]) if fixed else Path()
    patterns = ("/".join(parts[fixed:]),)
    problems = ProblemReporter(None)
    if directory.is_dir():
        check_directory(directory)
        if discover(directory, compile_patterns(patterns), problems):
            return Given(directory, patterns)
    for problem in problems.unsolved(UNREAD):
        if problem.kind is ProblemKind.LINK:
            why = f"no matching file can be read: {problem}"
            raise UsageError(f"--{side} {path}: {why}; give the directory of the {side} logs, a file or another glob")
        raise LogDirectoryError(problem.message, str(directory / problem.path), "make it readable for this user")
    raise UsageError(
        f"--{side} {path}: no file matches; give the directory of the {side} logs, a file or another glob"
    )


def _objects(side: str, path: ObjectPath) -> Given:
    """Resolves a prefix, one object, or a glob of objects. Raises UsageError, LogDirectoryError."""
    parts = path.parts
    fixed = next((place for place, part in enumerate(parts) if _SPECIAL.search(part)), len(parts))
    if fixed < len(parts):
        return Given(ObjectPath(*parts[:fixed]), ("/".join(parts[fixed:]),))
    check_directory(path)
    with contextlib.suppress(FileNotFoundError):
        if path.key and bucket_of(path).meta(path.key):
            return Given(path.parent, (_SPECIAL.sub(lambda special: f"[{special[0]}]", path.name),))
    return Given(path)


def _log_patterns(name: str) -> tuple[str, ...]:
    """Returns patterns that match a file and its rolled successors, as defined by ``log_name``; for a compressed or
    rolled file, only the file itself."""
    escaped = _SPECIAL.sub(lambda special: f"[{special[0]}]", name)
    if re.search(r"\.(?:gz|zstd?|bz2|xz|[0-9]{1,4})$", name):
        return (escaped,)
    rolled = [f"{escaped}.[0-9]", f"{escaped}.[0-9][0-9]", f"{escaped}[-.][12][0-9][0-9][0-9][-0-9]*"]
    return tuple(each + packed for each in (escaped, *rolled) for packed in ("", *COMPRESSED_SUFFIXES))


def check_streams(sides: Mapping[str, Given], *, once: bool) -> None:
    """Checks the use of standard input. ``sides``: sides that are not standard input. Raises UsageError."""
    if not sides:
        raise UsageError(
            "--primary - and --foreign -: only one side can be standard input; give the logs of the other"
        )
    if len(sides) == 1 and not once:
        raise UsageError(
            "-: standard input is read to its end before it is joined, so it needs --once; to follow a stream, "
            "append it to a file and name that"
        )


async def standard_input(directory: Path) -> Given:
    """Reads and keeps standard input (see ``spooled``). Uses a thread that nothing waits for, because a pipe may
    never end.

    Raises UsageError.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Given] = loop.create_future()

    def end(outcome: Given | UsageError) -> None:
        if done.done():  # the run was stopped
            return
        if isinstance(outcome, Given):
            done.set_result(outcome)
        else:
            done.set_exception(outcome)

    def read() -> None:
        try:
            outcome: Given | UsageError = spooled(directory, sys.stdin.buffer)
        except OSError as error:
            outcome = UsageError(
                f"{directory}: standard input cannot be kept ({error.strerror}); free some space or name another "
                "output"
            )
        except UsageError as error:
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the run was stopped
            loop.call_soon_threadsafe(end, outcome)

    threading.Thread(target=read, daemon=True).start()
    return await done


def spooled(directory: Path, stream: IO[bytes]) -> Given:
    """Reads standard input to its end and stores it durably as a log in ``directory``. The log appears only when
    complete. Compressed input is stored uncompressed.

    If the input begins with a whole earlier log, that log has grown (the same command was run again). If it is the
    beginning of an earlier log, nothing is added. Otherwise it is a separate log. Raises OSError, UsageError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    arriving = directory / "arriving.tmp"
    with open(arriving, "wb") as file:
        shutil.copyfileobj(stream, file, COPY_BYTES)
    arriving = _unpacked(arriving)
    kept = sorted(directory.glob("stdin-*"))
    longer = next((log for log in kept if _begins_with(log, arriving)), None)
    shorter = next((log for log in kept if _begins_with(arriving, log)), None)
    if longer is not None or not arriving.stat().st_size:
        arriving.unlink()
    else:
        descriptor = os.open(arriving, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.utime(arriving, (0, 0))  # the writer has stopped, so an unfinished last line counts as complete
        arriving.replace(shorter or directory / f"stdin-{len(kept) + 1}")
    RealDisk().sync_dir(directory)
    return Given(directory, ("stdin-*",))


def _unpacked(path: Path) -> Path:
    """Decompresses a file in place, if it is compressed. Returns the path of the uncompressed file."""
    with open(path, "rb") as file:
        head = file.read(6)
    suffix = next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")
    if not suffix:
        return path
    packed = path.rename(path.with_name(f"packed.tmp{suffix}"))
    source = open_source(packed)
    try:
        with open(path, "wb") as file:
            while data := source.read(file.tell(), COPY_BYTES):
                file.write(data)
        if wrong := source.damage() or (source.cut_short() and "it is cut off"):
            raise UsageError(f"standard input is compressed but damaged: {wrong}; none of it is joined")
    finally:
        source.close()
        packed.unlink()
    return path


def _begins_with(path: Path, other: Path) -> bool:
    """Returns True if the file ``path`` begins with all bytes of ``other``."""
    left = other.stat().st_size
    if path.stat().st_size < left:
        return False
    with open(path, "rb") as one, open(other, "rb") as two:
        while left and one.read(min(left, COPY_BYTES)) == two.read(min(left, COPY_BYTES)):
            left -= min(left, COPY_BYTES)
    return left == 0
