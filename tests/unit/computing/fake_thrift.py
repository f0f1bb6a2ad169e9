"""A Thrift 2 server of HBase in memory: the used calls, with HBase's meaning of timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from photon.computing.store import GROUPS
from photon.rows.hbase.connection import NotConnected
from photon.rows.hbase.rows import HBaseRows
from photon.rows.hbase.thrift2 import types_of

Work = Callable[[], Any]


class FakeHBase:
    """``fault`` meets each call with its name and action, and may do it, leave it out, or do it later."""

    def __init__(self) -> None:
        self.rows: dict[bytes, dict[bytes, tuple[bytes, int]]] = {}
        self.calls: list[str] = []
        self.fault: Callable[[str, Work], Any] = lambda name, work: work()
        self.types = types_of()

    def opened(self) -> HBaseRows:
        rows = HBaseRows(["fake:1"], "t", "t", GROUPS, threads=3, call_s=60.0, connects=[lambda: _Client(self)])
        rows.servers.pause_s = 0.0
        return rows

    def put(self, put: Any) -> None:
        row = self.rows.setdefault(put.row, {})
        for each in put.columnValues:
            if each.qualifier not in row or row[each.qualifier][1] <= each.timestamp:
                row[each.qualifier] = (each.value, each.timestamp)

    def result(self, row: bytes, columns: Any) -> Any:
        wanted = {each.qualifier for each in columns}
        values = [
            self.types.TColumnValue(family=b"c", qualifier=name, value=value, timestamp=at)
            for name, (value, at) in sorted(self.rows.get(row, {}).items())
            if None in wanted or name in wanted
        ]
        return self.types.TResult(row=row if values else None, columnValues=values)


class _Client:
    def __init__(self, server: FakeHBase) -> None:
        self._server = server

    def _call(self, name: str, work: Work) -> Any:
        self._server.calls.append(name)
        return self._server.fault(name, work)

    def getMultiple(self, table: bytes, gets: list[Any]) -> Any:  # noqa: N802
        return self._call("get", lambda: [self._server.result(each.row, each.columns) for each in gets])

    def getScannerResults(self, table: bytes, scan: Any, count: int) -> Any:  # noqa: N802
        def work() -> Any:
            names = sorted(row for row in self._server.rows if scan.startRow <= row < scan.stopRow)
            found = (self._server.result(row, scan.columns) for row in names)
            return [each for each in found if each.columnValues][:count]

        return self._call("scan", work)

    def putMultiple(self, table: bytes, puts: list[Any]) -> None:  # noqa: N802
        for each in puts:  # HBase's own client may write some and not the others
            self._call("put", lambda put=each: self._server.put(put))

    def checkAndPut(self, table: bytes, row: bytes, family: bytes, column: bytes, expected: Any, put: Any) -> Any:  # noqa: N802
        def work() -> bool:
            if self._server.rows.get(row, {}).get(column, (None,))[0] != expected:
                return False
            self._server.put(put)
            return True

        return self._call("check", work)

    def deleteMultiple(self, table: bytes, deletes: list[Any]) -> None:  # noqa: N802
        def work() -> None:
            for each in deletes:
                row = self._server.rows.get(each.row, {})
                for name in [name for name, (_, at) in row.items() if at <= each.timestamp]:
                    del row[name]

        self._call("delete", work)

    def tableExists(self, table: Any) -> bool:  # noqa: N802
        return True

    def close(self) -> None: ...


def unavailable() -> NotConnected:
    return NotConnected("no Thrift 2 server of HBase answers at fake:1: refused")
