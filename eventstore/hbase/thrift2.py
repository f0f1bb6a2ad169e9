"""HBase's Thrift 2 server through thriftpy2: the only file that imports it.

An interface is written by hand, with what is used of HBase's own; enums are the numbers that they are on the wire.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any

from photon.config.errors import UsageError
from photon.eventstore.hbase.api import HBaseUnavailable


def interface(idl: str) -> Any:
    """A module with the types of ``idl``, whose service is THBaseService. Raises UsageError."""
    try:
        import thriftpy2
    except ImportError:
        raise UsageError("happybase is not installed: pip install 'photon-join[hbase]'") from None
    name = f"photon_hbase_{hashlib.blake2b(idl.encode(), digest_size=6).hexdigest()}_thrift"
    return thriftpy2.load_fp(io.StringIO(idl), module_name=name)


def connector(address: str, service: Any, key: str, answer_seconds: float) -> Callable[[], Any]:
    """Opens clients of a Thrift 2 server at host:port, which ``key`` of the configuration names.

    Raises UsageError; what it gives raises HBaseUnavailable.
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
            raise HBaseUnavailable(f"no Thrift 2 server of HBase answers at {address}: {why}") from None

    return connect
