"""Writes the rejected and late logs: each line exactly once, regardless of crashes.

A line enters the outbox in the transaction that counts its event, and gets a number there. It is then written to a
published log (``photon.outputs.log.writer``), which records the last published number, and removed from the outbox.
At a start, published lines are dropped from the outbox and the others are written.

Readers may have seen the published log, so it takes precedence: a lost or older database continues after its last
line. If published lines are missing instead, the dispatcher refuses to start.

Each dispatcher has its own outbox and files; only the holder of its database's lock may change them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from photon.config.disk import Disk
from photon.dispatcher.events import LATE, REJECTED
from photon.dispatcher.partitions import ALL, Partition
from photon.dispatcher.state import State
from photon.outputs.log.writer import ROLL_BYTES, LogWriter
from photon.outputs.output_places import EXPORTS_DIRECTORY
from photon.outputs.published import PublishedDamaged

FLUSH_LINES = 10_000  # lines written between two transactions
LOGS = (REJECTED, LATE)


def log_of(
    disk: Disk, output: Path, published: Path, partition: Partition, roll_bytes: int = ROLL_BYTES
) -> LogWriter:
    """Returns a dispatcher's published log, without loading it. ``published``: the state directory."""
    name = partition.named("dispatcher")
    return LogWriter(disk, output, published / EXPORTS_DIRECTORY / name, name, LOGS, roll_bytes=roll_bytes)


class Exports:
    """Writes files ``OUTPUT/<log>/dispatcher-<6 digits>.jsonl``, or ``dispatcher-<partition>-<6 digits>.jsonl``."""

    def __init__(
        self,
        output: Path,
        disk: Disk,
        state: State,
        published: Path,
        *,
        warn: Callable[[str], None],
        roll_bytes: int = ROLL_BYTES,
        partition: Partition = ALL,
    ) -> None:
        """Writes the lines left in the outbox by an earlier process. ``published``: the state directory.

        Raises NotOfThisState, PublishedDamaged, StateError, OSError.
        """
        self._state = state
        self._log = log_of(disk, output, published, partition, roll_bytes)
        self._log.load()
        self._log.expect(state.exported_upto(), str(state.path))
        self._recover(warn)
        self.flush()

    def _recover(self, warn: Callable[[str], None]) -> None:
        if self._state.number_behind(self._log.upto):
            warn(f"{self._state.path}: was lost or is older than what it has exported; lines may be exported again")
        if self._log.upto > self._state.exported_upto():
            self._state.exported(self._log.upto)
        rows = self._state.outbox(FLUSH_LINES)
        changed = False
        for log in LOGS:
            path = self._log.path(log)
            try:
                if not self._log.recover(log, {export.line for _, export in rows if export.log == log}):
                    changed = True
                    warn(
                        f"{path}: {self._state.path} does not know it; it is kept, and writing continues in "
                        f"{self._next(log)}"
                    )
            except PublishedDamaged as damaged:
                self._log.skip(log)
                warn(f"{damaged}; continuing in {self._next(log)}")
        if changed:
            self._log.show()

    def _next(self, log: str) -> str:
        return self._log.path(log).name

    def flush(self) -> None:
        """Writes the outbox to its files, durably.

        After OSError the process must end; the next start completes the write.
        """
        while lines := self._state.outbox(FLUSH_LINES):
            by_log: dict[str, list[bytes]] = {}
            for _, export in lines:
                by_log.setdefault(export.log, []).append(export.line)
            for log, chunk in by_log.items():
                self._log.append(log, b"".join(chunk))
            upto = lines[-1][0]
            self._log.publish(upto)
            self._state.exported(upto)

    def close(self) -> None:
        """Closes the open files."""
        self._log.close()
