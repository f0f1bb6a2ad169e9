"""Live logs of two datacentres for as long as needed, and the expected output for all lines so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from photon.lab.demo.feed import Copy, Logs
from photon.lab.demo.generator import Disorder, Generator, Line

STEP_S = 1.0  # events in such bursts go through in fewer batches, which dominate the processes' cost
PIECE_S = 5.0
CLICKS_A_SECOND = 3
DISORDER = Disorder(late_by=1.0, query_delay=0.4)


@dataclass(slots=True)
class _Piece:
    """Some seconds of the stream, in separate log files."""

    generator: Generator
    lines: list[Line]
    copies: Mapping[str, Copy]
    began: float

    @property
    def written(self) -> int:
        return max(copy.written for copy in self.copies.values())

    @property
    def done(self) -> bool:
        return all(copy.done for copy in self.copies.values())


class Traffic:
    """Written by a thread: pieces of PIECE_S, one beginning when the one before it has its last ordinary line."""

    def __init__(self, directory: Path, datacentres: tuple[str, ...], seed: int) -> None:
        self._directory = directory
        self._datacentres = datacentres
        self._seed = seed
        self._pieces: list[_Piece] = []
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._failed: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops once the begun pieces are written."""
        self._ending.set()
        self._thread.join(60)
        self.check()
        assert not self._thread.is_alive(), "the traffic does not end"

    def check(self) -> None:
        """Raises the thread's failure."""
        if self._failed is not None:
            raise self._failed

    def hold(self, datacentre: str) -> None:
        """Nothing arrives there until it is released."""
        with self._lock:
            self._held.add(datacentre)

    def go_on(self, datacentre: str) -> None:
        with self._lock:
            self._held.discard(datacentre)

    def leave(self, datacentre: str) -> None:
        """It is permanently lost: nothing arrives there any more."""
        with self._lock:
            self._datacentres = tuple(each for each in self._datacentres if each != datacentre)
            for piece in self._pieces:
                piece.copies = {name: copy for name, copy in piece.copies.items() if name != datacentre}

    def joined(self) -> dict[str, str]:
        """click id -> query id, if both lines are written somewhere."""
        with self._lock:
            found: dict[str, str] = {}
            for piece in self._pieces:
                found |= _joined(piece.generator, piece.lines[: piece.written])
            return found

    def unmatched(self) -> set[str]:
        """Clicks without a query, written or not."""
        with self._lock:
            return {click for piece in self._pieces for click in piece.generator.truth.unmatched}

    def truth(self) -> dict[str, tuple[bytes, str]]:
        """click id -> its record without line end, and the query it names; for all joinable clicks."""
        with self._lock:
            return {
                click: (piece.generator.truth.clicks[click], query)
                for piece in self._pieces
                for click, query in piece.generator.truth.joined.items()
            }

    # -- the thread ------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while not (self._ending.is_set() and all(piece.done for piece in self._pieces)):
                now = time.monotonic()
                with self._lock:
                    last = self._pieces[-1].began if self._pieces else now - PIECE_S
                    if now - last >= PIECE_S and not self._ending.is_set():
                        self._pieces.append(self._piece(now))
                    for piece in self._pieces:
                        self._write(piece, now)
                time.sleep(STEP_S)
        except BaseException as error:
            self._failed = error

    def _write(self, piece: _Piece, now: float) -> None:
        for name, copy in piece.copies.items():
            copy.held = name in self._held
            if not copy.done:
                copy.write_due(int((now - piece.began) * 1e6))

    def _piece(self, now: float) -> _Piece:
        number = len(self._pieces)
        generator = Generator(
            self._seed + number,
            clicks=int(PIECE_S * CLICKS_A_SECOND),
            seconds=PIECE_S,
            queries_per_click=1,
            disorder=DISORDER,
            epoch_us=time.time_ns() // 1000,
        )
        lines = sorted(generator.lines(), key=lambda line: line.at_us)
        copies = {name: Copy(lines, self._logs(name, number)) for name in self._datacentres}
        return _Piece(generator, lines, copies, now)

    def _logs(self, datacentre: str, number: int) -> Logs:
        base = self._directory / datacentre
        logs = Logs(base / "queries" / f"{number:04d}", base / "clicks" / f"{number:04d}")
        for made in (logs.primary, logs.foreign):
            made.mkdir(parents=True, exist_ok=True)
        return logs


def _joined(generator: Generator, lines: list[Line]) -> dict[str, str]:
    queries, clicks = set(), set()
    for line in lines:
        if line.primary:
            queries.add(line.data[13 : line.data.index(b'"', 13)].decode())
        elif line.data.startswith(b'{"click_id":"') and line.data.endswith(b"}\n"):
            clicks.add(orjson.loads(line.data)["click_id"])
    truth = generator.truth.joined
    return {click: truth[click] for click in clicks if click in truth and truth[click] in queries}
