"""Further Thrift 2 servers of the HBase that the tests run on, to be killed."""

from __future__ import annotations

import time
from typing import Self

from deploy.hbase import standalone
from deploy.hbase.standalone import Part, Standalone
from photon.supervision.ports import free_ports


class Thrift2:
    """A context: it runs inside, unless it was killed."""

    def __init__(self, hbase: Standalone) -> None:
        self._hbase = hbase
        [self._port] = free_ports(1)
        self._name = f"thrift2-{self._port}"
        self.address = f"127.0.0.1:{self._port}"
        arguments = hbase.parts["admin"].arguments
        hbase.parts[self._name] = Part(
            self._name, (arguments[0], "-p", str(self._port), *arguments[3:]), "64m", self._port
        )

    def start(self) -> None:
        self._hbase.start([self._name], wait=False)
        deadline = time.monotonic() + standalone.START_SECONDS_MAX
        while not standalone.answers("127.0.0.1", self._port, standalone._QUESTIONS["admin"]):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def kill(self) -> None:
        self._hbase.kill(self._name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
