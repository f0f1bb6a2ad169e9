"""``photon.join`` and ``photon.read``: the main entry points of the Python API."""

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
from photon.local_join.words import Field

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
    """Reads an output's published records, for use with ``for``, ``async for``, Arrow, pandas, Polars and DuckDB::

        for record in photon.read("out"):
            print(record.event_id, record.foreign, record.primary)

    ``path``: a directory that ``photon join`` writes, or a deployment file (``.toml``) with ``datacentre``
    (``None`` means the only one). ``kinds``: joined, unmatched, filtered, rejected, late. ``cursor``: where to start:
    an earlier ``cursor``, "end", or ``None`` for the beginning. ``follow``: continue with new records.
    ``cleared_only``: only records that stay valid even if a slot is retired; slightly delayed. ``schema``: column
    types for tables, such as ``{"foreign.amount": "float"}`` (``photon.outputs.json_types`` lists them); ``None``
    infers them from the data. ``flatten``: columns such as ``foreign_amount`` instead of structs.

    Raises UsageError (also ConfigError, CursorUnreadable), each with a one-line message.
    """
    place = Path(path)
    if place.suffix == ".toml":
        output = Output.of_deployment(place, datacentre)
    elif datacentre is not None:
        raise UsageError(f"{place}: datacentre can be given only with a deployment file (.toml)")
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
    key: Field | Sequence[Field] | None = None,
    primary_key: Field | Sequence[Field] | None = None,
    foreign_key: Field | Sequence[Field] | None = None,
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
    """Joins two logs exactly once, in separate processes; iterate over the pairs as they arrive::

        for pair in photon.join(primary="orders", foreign="payments", key="order_id", time="paid_at"):
            print(pair.event_id, pair.event_time, pair.foreign["amount"], pair.primary["customer"])

    ``primary``, ``foreign``: a directory, a file or a glob each. ``output``: a directory that keeps the join, so that
    it continues there next time, and iteration starts at the first record or after ``cursor``; ``None`` means a
    temporary directory (TMPDIR), removed with the object. Settings that are not given are inferred from the data; if
    that fails, an error says in one line what is unclear.

    How the logs are read: ``key``, or ``primary_key`` and ``foreign_key``: the field that names the primary event
    ("a.b" is field b in a), or a table as in a configuration. ``id``: the field with the foreign event's unique id.
    ``time``: the field with its time, whose unit is inferred, or ``{"field": "at", "unit": "ms"}``; events without a
    time are joined, too. ``format``: jsonl, csv and so on, or ``{"primary": "csv", "foreign": ...}``. ``more``: other
    keys of ``[join.NAME]`` in the configuration (``unmatched_after="1h"``). ``config``: a file, or a mapping in the
    form of ``[join.NAME]``, instead of all these; ``name``: the join's name in the file.

    ``follow``: continue with new records until it is closed; otherwise (``once``) end when all present events have a
    verdict. ``unmatched``: include events that have no primary event, with ``primary`` None; "inline": write them
    among the joined records (docs/joins.md). ``kinds``: the kinds of records to yield. ``schema``, ``flatten``: as
    for ``photon.read``. ``keep_pending``, ``settings``: as for ``photon join``.

    Raises UsageError, here or while iterating; JoinStopped, while iterating, if the join has failed. Each message is
    one line; if a setting is unclear, ``example`` (also added as a note) is a configuration to correct.
    """
    if once is not None and once == follow:
        raise UsageError(f"once={once} and follow={follow} contradict each other; give one of them")
    following = bool(follow) if once is None else not once
    if keep_pending and following:
        raise UsageError("keep_pending requires once; with follow, pending events are kept anyway")
    if kinds is not None and unmatched:
        raise UsageError("give either unmatched or kinds, not both")
    if unmatched == "inline":
        more = {**more, "unmatched": unmatched}
    elif not isinstance(unmatched, bool):
        raise UsageError(f'unmatched={unmatched!r}: must be True, False or "inline"')
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
    """The pairs of a running join. ``close``, leaving a ``with`` block, or dropping the object stops the join and
    removes temporary files."""

    def __init__(self, running: Join, own: Path, **options: Any) -> None:
        """``own``: a temporary directory to remove at the end."""
        super().__init__(running.output(), follow=not running.once, **options)
        self._join = running
        self._closed = weakref.finalize(self, _end, running, own)
        self._how: JoinEnded | None = None
        self._kept: tuple[dict[str, int], str] | None = None
        """The ledger and configuration of a closed join."""
        self._join.start()

    @property
    def ledger(self) -> dict[str, int]:
        """Returns the lines per verdict (docs/ledger.md); after closing, the final counts. Raises StateError."""
        if self._how is not None:
            return self._how.ledger
        return self._join.ledger() if self._kept is None else self._kept[0]

    @property
    def config(self) -> str:
        """Returns the current configuration, given or inferred, as TOML to keep or correct. Empty if it is not
        inferred yet."""
        if self._kept is not None:
            return self._kept[1]
        path = self._join.config or Site(self._join.directory).state / "inferred.toml"
        return path.read_text() if path.exists() else ""

    def said(self) -> tuple[str, ...]:
        """Returns the last lines that the join has printed: inferred settings, unreadable logs."""
        return self._join.said()

    def wait(self, timeout_s: float | None = None) -> JoinEnded:
        """Waits until the join ends by itself. Reports problems to check (rejected records, logs not read to their
        end) once, as a RuntimeWarning. Raises TimeoutError (the join still runs), JoinStopped, UsageError."""
        if self._how is None:
            self._how = self._join.wait(timeout_s)
            if self._how.attention:
                warnings.warn(self._how.attention, RuntimeWarning, stacklevel=3)
        return self._how

    def close(self) -> None:
        """Stops the join and removes temporary files. Running loops end, or raise that the join is closed."""
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
            raise UsageError("this join is closed; read its output, if any, with photon.read")
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
