"""Calls HBase's Thrift 2 servers through thriftpy2. No other file imports thriftpy2.

The interface is written by hand: it is the part of HBase's interface that is used here, with enums as their numbers.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from photon.config.errors import UsageError
from photon.rows.hbase.connection import NotConnected

ROW_BLOOM, FAST_DIFF = 1, 4
_IDL = """
struct TTimeRange { 1: required i64 minStamp, 2: required i64 maxStamp }
struct TColumn { 1: required binary family, 2: optional binary qualifier, 3: optional i64 timestamp }
struct TColumnValue {
  1: required binary family, 2: required binary qualifier, 3: required binary value, 4: optional i64 timestamp
}
struct TResult { 1: optional binary row, 2: required list<TColumnValue> columnValues }
struct TGet {
  1: required binary row, 2: optional list<TColumn> columns, 4: optional TTimeRange timeRange,
  5: optional i32 maxVersions
}
struct TPut { 1: required binary row, 2: required list<TColumnValue> columnValues }
struct TDelete {
  1: required binary row, 2: optional list<TColumn> columns, 3: optional i64 timestamp, 4: optional i32 deleteType
}
struct TScan {
  1: optional binary startRow, 2: optional binary stopRow, 3: optional list<TColumn> columns, 4: optional i32 caching,
  5: optional i32 maxVersions, 6: optional TTimeRange timeRange, 15: optional i32 limit
}
struct TNamespaceDescriptor { 1: required string name, 2: optional map<string, string> configuration }
struct TTableName { 1: optional binary ns, 2: required binary qualifier }
struct TColumnFamilyDescriptor {
  1: required binary name, 5: optional i32 bloomnFilterType, 8: optional i32 dataBlockEncoding,
  10: optional i32 maxVersions, 13: optional i32 timeToLive
}
struct TTableDescriptor {
  1: required TTableName tableName, 2: optional list<TColumnFamilyDescriptor> columns,
  3: optional map<binary, binary> attributes
}
exception TIOError { 1: optional string message, 2: optional bool canRetry }
exception TIllegalArgument { 1: optional string message }
service THBaseService {
  list<TResult> getMultiple(1: required binary table, 2: required list<TGet> tgets) throws (1: TIOError io)
  bool checkAndPut(1: required binary table, 2: required binary row, 3: required binary family,
    4: required binary qualifier, 5: binary value, 6: required TPut tput) throws (1: TIOError io)
  void putMultiple(1: required binary table, 2: required list<TPut> tputs) throws (1: TIOError io)
  list<TDelete> deleteMultiple(1: required binary table, 2: required list<TDelete> tdeletes) throws (1: TIOError io)
  list<TResult> getScannerResults(1: required binary table, 2: required TScan tscan, 3: i32 numRows)
    throws (1: TIOError io, 2: TIllegalArgument ia)
  void createNamespace(1: required TNamespaceDescriptor namespaceDesc) throws (1: TIOError io)
  bool tableExists(1: required TTableName tableName) throws (1: TIOError io)
  void createTable(1: required TTableDescriptor desc, 2: optional list<binary> splitKeys) throws (1: TIOError io)
  void disableTable(1: required TTableName tableName) throws (1: TIOError io)
  void deleteTable(1: required TTableName tableName) throws (1: TIOError io)
}
"""


def types_of() -> Any:
    """Returns the module of Thrift types, including the service THBaseService. Raises UsageError."""
    try:
        import thriftpy2
    except ImportError:
        raise UsageError("happybase is not installed: pip install 'photon-join[hbase]'") from None
    return thriftpy2.load_fp(io.StringIO(_IDL), module_name="photon_hbase_thrift")


def connector(address: str, service: Any, key: str, answer_seconds: float) -> Callable[[], Any]:
    """Returns a function that opens clients of the Thrift 2 server at host:port. ``key``: the setting that names it.

    Raises UsageError; the function raises NotConnected.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{key} = {address!r}: must be host:port of HBase's Thrift 2 server")

    def connect() -> Any:
        from thriftpy2.rpc import make_client
        from thriftpy2.transport import TTransportException

        try:
            return make_client(service.THBaseService, host, int(port), timeout=int(answer_seconds * 1000))
        except (TTransportException, OSError) as error:
            why = getattr(error, "message", None) or error
            raise NotConnected(f"no Thrift 2 server of HBase answers at {address}: {why}") from None

    return connect
