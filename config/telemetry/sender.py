"""Between a process and its collector: bounded queues, and one thread that sends.

Whoever has something to send never waits. What a collector that is away does not take is dropped, and counted; one
line says so, and one that it is over.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from photon.config.metrics.readings import Readings
from photon.config.structured import get_logger

QUEUE_MAX = 2048  # Spans, and log lines, that wait; the oldest give way. Of metrics only the newest reading waits.
BATCH_MAX = 512  # sent in one request
PERIOD_S = 1.0
STOP_S = 2.0  # at its end a process waits this long for what is still to be sent

SPANS, LOGS, METRICS = "spans", "logs", "metrics"

log = get_logger(__name__)

Send = Callable[[Sequence[Any]], str]
"""Sends some, and waits for the answer: why they were not taken; empty: they were."""


class Sender:
    def __init__(self, sends: Mapping[str, Send], endpoint: str) -> None:
        """``sends``: by signal. ``endpoint``: for people."""
        self._sends = sends
        self._endpoint = endpoint
        self._queues = {signal: deque[Any](maxlen=1 if signal == METRICS else QUEUE_MAX) for signal in sends}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._away: set[str] = set()  # signals that were not taken last
        self.sent, self.dropped = Counter[str](), Counter[str]()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Sends what is left and was taken before; takes no longer than STOP_S."""
        self._stopping.set()
        self._thread.join(STOP_S)

    def put(self, signal: str, item: Any) -> None:
        """From any thread."""
        with self._lock:
            queue = self._queues[signal]
            self.dropped[signal] += len(queue) == queue.maxlen
            queue.append(item)

    def read(self, into: Readings) -> None:
        """A source of metrics."""
        for signal in self._queues:
            into.put("photon_telemetry_sent_total", self.sent[signal], signal=signal)
            into.put("photon_telemetry_dropped_total", self.dropped[signal], signal=signal)

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_S):
            self.send(self._sends)
        self.send(self._sends.keys() - self._away)

    def send(self, signals: Iterable[str]) -> None:
        """Everything of these that waits; of each until something is not taken."""
        for signal in signals:
            while batch := self._taken(signal):
                problem = self._sends[signal](batch)
                with self._lock:
                    (self.dropped if problem else self.sent)[signal] += len(batch)
                self._tell(signal, problem)
                if problem:
                    break

    def _taken(self, signal: str) -> list[Any]:
        with self._lock:
            queue = self._queues[signal]
            return [queue.popleft() for _ in range(min(len(queue), BATCH_MAX))]

    def _tell(self, signal: str, problem: str) -> None:
        """Lines are a signal as well: a collector that takes the others, and not these, must not be told of twice."""
        if problem and not self._away:
            log.warning(
                "telemetry is not taken, and dropped meanwhile",
                endpoint=self._endpoint,
                signal=signal,
                problem=problem,
            )
        if problem:
            self._away.add(signal)
        elif signal in self._away:
            self._away.clear()
            log.info("telemetry is sent again", endpoint=self._endpoint, dropped=dict(self.dropped))
