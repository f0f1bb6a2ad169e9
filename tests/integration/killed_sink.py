"""A sink is killed again and again while records come, and now and then its target server."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Container
from pathlib import Path
from typing import Protocol

from photon.cli.errors import DONE
from tests.integration.commands import photon, running, until
from tests.unit.outputs.helpers import written_output

SEED = int(os.environ.get("PHOTON_SEED", "1"))
WAIT_S = 90.0
MORE = 300


class Server(Protocol):
    def start(self) -> None: ...
    def kill(self) -> None: ...


def line(number: int) -> bytes:
    said = {"event_id": f"c{number}", "key": "k", "event_time_ns": number * 1000, "foreign": {"n": number},
            "primary": {"w": "ä\t\\N"}, "source": {"file": "a.log", "offset": number}, "token": "0a"}  # fmt: skip
    return json.dumps(said).encode() + b"\n"


def survive(
    base: Path,
    sink: str,
    *into: str,
    server: Server,
    there: Callable[[], int],
    kills: int,
    of_server: Container[int],
) -> int:
    """Runs ``photon sink SINK OUTPUT INTO`` over ``line`` 0, 1, … until all are there, and returns their number.
    ``there``: how many are there now. ``of_server``: kills of the sink before which its server is killed."""
    chance = random.Random(SEED)
    slot = written_output(base)
    command = ["sink", sink, slot.place.output, *into]
    log = base / "sink.log"
    total = 0

    def write() -> None:
        nonlocal total
        slot.append(total // MORE + 1, b"".join(line(n) for n in range(total, total + MORE)))
        slot.roll(total // MORE + 1)
        total += MORE

    for kill in range(kills):
        with running(*command, "--follow", log=log) as process:
            write()
            until(lambda: there() > total - MORE, WAIT_S, "the sink has begun with it")
            write()
            if kill in of_server:
                server.kill()
                write()
                server.start()
                until(lambda: there() == total, WAIT_S, "it goes on by itself once the server is back")
            elif chance.random() < 0.5:
                until(lambda: there() > total - MORE, WAIT_S, "it has begun")
            assert process.poll() is None, log.read_text()
            process.send_signal(signal.SIGKILL)
            process.wait()
    done = photon(*command)
    assert (done.code, done.err) == (DONE, "")
    return total
