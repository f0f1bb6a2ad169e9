"""``photon.join`` and ``photon.read``: the front door of the Python API."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from photon.config.errors import PhotonError, UsageError
from photon.library.join import Join, JoinEnded, check_logs
from photon.library.output import Output
from photon.library.records import Records
from photon.library.written_config import config_file, said_words, settings_of
from photon.local_join.site import Site

JOINED = ("joined",)
LEFT = ("joined", "unmatched")


def read(
    path: str | Path,
    *,
    kinds: str | Sequence[str] = JOINED,
    cursor: bytes | str | None = None,
    follow: bool = False,
    datacentre: str | None = None,
    cleared_only: bool = False,
    schema: Mapping[str, Any] | None = None,
    flatten: bool = False,
) -> Records:
    """What is published in an output, for ``for``, ``async for``, Arrow, pandas, Polars and DuckDB::

        for record in photon.read("out"):
            print(record.event_id, record.foreign, record.primary)

    ``path``: a directory that ``photon join`` writes, or a deployment's file (``.toml``) with ``datacentre`` (None:
    the only one). ``kinds``: joined, unmatched, filtered, rejected, late. ``cursor``: where to begin: a ``cursor`` of
    before, "end", or None for the beginning. ``follow``: go on with what comes. ``cleared_only``: only what holds
    even if a slot is retired; a little later. ``schema``: types of the payloads for tables,
    ``{"foreign.amount": "float"}`` (``photon.outputs.json_types`` names them); None: found of the data. ``flatten``:
    columns ``foreign_amount`` in place of structs.

    Raises UsageError (also ConfigError, CursorUnreadable), of one line.
    """
    place = Path(path)
    if place.suffix == ".toml":
        output = Output.of_deployment(place, datacentre)
    elif datacentre is not None:
        raise UsageError(f"{place}: datacentre goes with a deployment's file")
    else:
        output = Output.of_join(place)
    return Records(
        output, kinds=kinds, cursor=cursor, follow=follow, cleared_only=cleared_only, schema=schema, flatten=flatten
    )


def join(
    primary: str | Path,
    foreign: str | Path,
    output: str | Path | None = None,
    *,
    key: str | Sequence[str] | None = None,
    primary_key: str | Sequence[str] | None = None,
    foreign_key: str | Sequence[str] | None = None,
    id: str | None = None,
    time: str | Mapping[str, str] | None = None,
    format: str | Mapping[str, str] | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    once: bool | None = None,
    follow: bool | None = None,
    unmatched: bool | Literal["inline"] = False,
    kinds: str | Sequence[str] | None = None,
    cursor: bytes | str | None = None,
    schema: Mapping[str, Any] | None = None,
    flatten: bool = False,
    name: str | None = None,
    keep_pending: bool = False,
    settings: Sequence[str] = (),
    **more: Any,
) -> Pairs:
    """Joins two logs exactly once, in processes of its own; the pairs as they come::

        for pair in photon.join(primary="orders", foreign="payments", key="order_id", time="paid_at"):
            print(pair.event_id, pair.event_time, pair.foreign["amount"], pair.primary["customer"])

    ``primary``, ``foreign``: a directory, a file or a glob each. ``output``: where it is kept, so that it goes on
    there next time, and its records are read again from the beginning or behind ``cursor``; None: a temporary
    directory (TMPDIR), removed with the object. Whatever is not said is found of the data, or one line says what is
    unclear.

    How the logs are read: ``key``, or ``primary_key`` and ``foreign_key``: the field that names the primary event
    ("a.b" within a). ``id``: the foreign event's own unique id. ``time``: its time, a field, whose unit is found, or
    ``{"field": "at", "unit": "ms"}``; events without one are joined, too. ``format``: jsonl, csv and so on, or
    ``{"primary": "csv", "foreign": ...}``. ``more``: other keys of ``[join.NAME]`` in the configuration
    (``unmatched_after="1h"``). ``config``: a file, or a mapping as ``[join.NAME]`` has it, in place of all these;
    ``name``: which join of the file.

    ``follow``: go on with what comes until it is closed; else (``once``) end when all that is there has a verdict.
    ``unmatched``: events that have no primary as well, with ``primary`` None; "inline": written among the joined
    records (docs/joins.md). ``kinds``: others. ``schema``, ``flatten``: as ``photon.read``. ``keep_pending``,
    ``settings``: as ``photon join`` has them.

    Raises UsageError here, or where the pairs are taken; JoinStopped there: the join has failed. One line each; of
    what is unclear ``example``, a note as well, is a configuration to correct.
    """
    if once is not None and once == follow:
        raise UsageError(f"once={once} and follow={follow} contradict each other; give one of them")
    following = bool(follow) if once is None else not once
    if keep_pending and following:
        raise UsageError("keep_pending goes with once; what follows keeps them anyway")
    if kinds is not None and unmatched:
        raise UsageError("unmatched and kinds say the same; give one of them")
    if unmatched == "inline":
        more = {**more, "unmatched": unmatched}
    elif not isinstance(unmatched, bool):
        raise UsageError(f'unmatched={unmatched!r}: it is True, False or "inline"')
    check_logs(primary, foreign)
    words = said_words(
        config=config, key=key, primary_key=primary_key, foreign_key=foreign_key, id=id, time=time, format=format,
        more=more,
    )  # fmt: skip
    table = config_file(config) if isinstance(config, Mapping) else None
    own = Path(tempfile.mkdtemp(prefix="photon-"))
    try:
        if table is not None:
            config = own / "join.toml"
            config.write_text(table)
        running = Join(
            primary, foreign, own / "output" if output is None else output, config=config,  # type: ignore[arg-type]
            join=name, once=not following, keep_pending=keep_pending,
            settings=[*settings_of(more), *settings], words=words,
        )  # fmt: skip
        return Pairs(
            running,
            own,
            kinds=kinds or (LEFT if unmatched else JOINED),
            cursor=cursor,
            schema=schema,
            flatten=flatten,
        )
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise


class Pairs(Records):
    """The pairs of a join that runs. ``close``, the end of a ``with``, or of the object itself, stops it; what
    is temporary goes then."""

    def __init__(self, running: Join, own: Path, **options: Any) -> None:
        """``own``: a directory to remove in the end."""
        super().__init__(running.output(), follow=not running.once, **options)
        self._join = running
        self._closed = weakref.finalize(self, _end, running, own)
        self._how: JoinEnded | None = None
        self._kept: tuple[dict[str, int], str] | None = None
        """Ledger and configuration of what is closed."""
        self._join.start()

    @property
    def ledger(self) -> dict[str, int]:
        """The number of lines with each verdict (docs/ledger.md); when closed, as of its end. Raises StateError."""
        if self._how is not None:
            return self._how.ledger
        return self._join.ledger() if self._kept is None else self._kept[0]

    @property
    def config(self) -> str:
        """The configuration that it runs with, TOML: as given, or as found of the data. To keep and correct. Empty:
        it has not found it yet."""
        if self._kept is not None:
            return self._kept[1]
        path = self._join.config or Site(self._join.directory).state / "inferred.toml"
        return path.read_text() if path.exists() else ""

    def said(self) -> tuple[str, ...]:
        """What it told people, its last lines: what was found of the data, what cannot be read."""
        return self._join.said()

    def wait(self, timeout_s: float | None = None) -> JoinEnded:
        """Until it ends by itself. What should be looked at (rejected records, logs not read to their end) is a
        RuntimeWarning, once. Raises TimeoutError (it runs on), JoinStopped, UsageError."""
        if self._how is None:
            self._how = self._join.wait(timeout_s)
            if self._how.attention:
                warnings.warn(self._how.attention, RuntimeWarning, stacklevel=3)
        return self._how

    def close(self) -> None:
        """Stops it and removes what is temporary. Loops over it end, or are told that it is closed."""
        if self._closed.alive:
            _stop(self._join)
            with contextlib.suppress(PhotonError, OSError):
                self._kept = self.ledger, self.config
        self._closed()

    def _over(self) -> bool:
        if not self._closed.alive:
            return True
        if self._join.running():
            return False
        self.wait()
        return True

    def _blocks(self) -> Any:
        if not self._closed.alive:
            raise UsageError("this join is closed; read its output with photon.read, where it has one")
        return super()._blocks()

    def _sampled(self) -> Any:
        if self._join.once:
            self.wait()
        return super()._sampled()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(running: Join, own: Path) -> None:
    _stop(running)
    shutil.rmtree(own, ignore_errors=True)


def _stop(running: Join) -> None:
    with contextlib.suppress(PhotonError, TimeoutError):
        if running.running():
            running.stop()
    running.kill()
