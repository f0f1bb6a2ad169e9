"""Keeps the audit trail of commands run on this machine: a file of JSON lines next to the deployment file.

A command that changes something writes a line before it starts and one after it has ended, so that killed commands
show up too. If the first line cannot be written, nothing is done. Processes that serve operators' calls log them as
well (photon.config.audit).
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from photon.cli.heads import Deployed, words_of
from photon.config.errors import PhotonError
from photon.fleet.parts import Column, Part

Command = TypeVar("Command", bound=Callable[..., Any])
VARIABLE = "PHOTON_AUDIT"
NAME = ".photon-audit.jsonl"
FILE_BYTES = 4 << 20  # maximum size of the file; beyond it the file becomes NAME.1, the one old file kept
ARGUMENTS_MAX, SAID_CHARACTERS = 200, 300
ARGUMENTS = "photon.arguments"  # key in click's context.meta for the words of the command line
HIDDEN = ("--set", "--spark")  # options that take KEY=VALUE, whose value may be a secret
OUTCOMES = {0: "done", 1: "failed", 2: "refused", 3: "attention"}


def audited(command: Command) -> Command:
    """Innermost decorator of a command that changes a deployment: writes its audit lines. Dry runs and commands
    without a deployment write none. Raises PhotonError if no line can be written; then nothing is done."""

    @functools.wraps(command)
    def told(**given: Any) -> Any:
        deployment = _deployment(given)
        unseen = (
            given.get("dry_run") or given.get("compose") or given.get("helm") or given.get("background")
        )  # "background": the process that photon up --detach starts
        if unseen or deployment is None or not deployment.parent.is_dir():
            return command(**given)
        context = click.get_current_context()
        with _lines(place(deployment), context, deployment) as line:
            code = command(**given)
            line["exit_code"] = code if isinstance(code, int) else 0
            return code

    told.photon_audited = True  # type: ignore[attr-defined]
    return told  # type: ignore[return-value]


def place(deployment: Path) -> Path:
    """Returns the path of a deployment's audit file: PHOTON_AUDIT if set, else NAME next to the deployment file."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else deployment.absolute().parent / NAME


def _deployment(given: Mapping[str, Any]) -> Path | None:
    if isinstance(at := given.get("at"), Deployed):
        return at.given
    found: Path | None = given.get("config")
    if "words" in given:
        from photon.cli.heads import file_and_names

        return file_and_names(given["words"], click.get_current_context().info_name or "")[0]
    return found


@contextmanager
def _lines(path: Path, context: click.Context, deployment: Path) -> Iterator[dict[str, Any]]:
    """Writes the first line now and the last one at the end; the caller puts ``exit_code`` into the yielded dict."""
    number = os.urandom(6).hex()
    begun = {
        "id": number,
        "user": _user(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": " ".join(words_of(context)),
        "arguments": hidden(context.meta.get(ARGUMENTS, ())),
        "deployment": str(deployment.absolute()),
        "outcome": "begun",
    }
    try:
        _append(path, begun)
    except OSError as error:
        raise PhotonError(
            f"{path}: no audit line can be written ({error.strerror}), so nothing was done; set {VARIABLE} to a "
            "file that you may write"
        ) from None
    ended: dict[str, Any] = {"exit_code": 1, "error": ""}
    try:
        yield ended
    except BaseException as error:
        ended["exit_code"] = getattr(error, "exit_code", 1)
        said = " ".join(str(error).split()) or type(error).__name__
        for secret in _values(context.meta.get(ARGUMENTS, ())):
            said = said.replace(secret, "…")
        ended["error"] = said[:SAID_CHARACTERS]
        raise
    finally:
        outcome = OUTCOMES.get(ended["exit_code"], "failed")
        try:
            _append(path, {"id": number, "outcome": outcome, **ended})
        except OSError as error:
            click.echo(f"photon: {path}: the end of the command could not be recorded ({error.strerror})", err=True)


def hidden(words: Sequence[str]) -> list[str]:
    """Returns the words of a command line with possible secrets replaced by "…"."""
    said, before = [], ""
    for word in words[:ARGUMENTS_MAX]:
        option, equals, rest = word.partition("=")
        if before in HIDDEN:
            said.append(f"{option}=…")
        elif option in HIDDEN and equals:
            said.append(f"{option}={rest.partition('=')[0]}=…")
        else:
            said.append(word[:SAID_CHARACTERS])
        before = word
    return said


def _values(words: Sequence[str]) -> list[str]:
    """Returns the values that ``hidden`` replaces."""
    pairs = zip(words, hidden(words), strict=False)
    return [word.rpartition("=")[2] for word, said in pairs if said.endswith("=…") and word.rpartition("=")[2]]


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have an id but no name
        return str(os.getuid())


def _append(path: Path, line: Mapping[str, Any]) -> None:
    """Appends one line. Rotates a large file first. Safe with several writers. Raises OSError."""
    import fcntl

    import orjson

    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    data = orjson.dumps({"version": 1, "at": at, **line}) + b"\n"
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            here = os.fstat(descriptor)
            if not _is(path, here):  # another process has rotated the file meanwhile
                continue
            if here.st_size + len(data) > FILE_BYTES:
                os.replace(path, old(path))
                continue
            os.write(descriptor, data)
            os.fsync(descriptor)
            return
        finally:
            os.close(descriptor)


def _is(path: Path, here: os.stat_result) -> bool:
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (here.st_dev, here.st_ino)


def old(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def entries(path: Path) -> list[dict[str, Any]]:
    """Returns one entry per command, ordered by start. ``ended_at`` and ``exit_code`` are `None` if it has no last
    line: it is still running or was killed. Skips malformed lines. Raises OSError."""
    import orjson

    found: dict[str, dict[str, Any]] = {}
    for each in (old(path), path):
        if not each.exists():
            continue
        for data in each.read_bytes().splitlines():
            try:
                line = orjson.loads(data)
                number, outcome = line.pop("id"), line["outcome"]
            except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
                continue
            line.pop("version", None)
            if outcome == "begun":
                found[number] = {**line, "ended_at": None, "exit_code": None, "error": ""}
            elif number in found:
                ended = {"outcome": outcome, "ended_at": line.get("at"), "exit_code": line.get("exit_code")}
                found[number] |= {**ended, "error": line.get("error", "")}
    return list(found.values())


COLUMNS = (
    Column("at", lambda row: str(row["at"])[:19] + "Z"),
    Column("who", lambda row: f"{row.get('user')}@{row.get('host')} ({row.get('pid')})"),
    Column("command", lambda row: " ".join(row.get("arguments") or [row["command"]])),
    Column("outcome", lambda row: row["outcome"] + (f": {row['error']}" if row["error"] else "")),
)


def show_audit(at: Deployed, limit: int = 50) -> int:
    """Implements ``photon status audit``."""
    path = place(at.config)
    found = entries(path)[-limit:]
    at.part(Part("commands", found, COLUMNS, f"{path}: no command recorded yet"), file=str(path))
    return 0
