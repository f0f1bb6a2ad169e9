from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Home(_message.Message):
    __slots__ = ("datacentre", "trusted", "left", "in_time")
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    TRUSTED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    IN_TIME_FIELD_NUMBER: _ClassVar[int]
    datacentre: str
    trusted: bool
    left: int
    in_time: int
    def __init__(self, datacentre: _Optional[str] = ..., trusted: _Optional[bool] = ..., left: _Optional[int] = ..., in_time: _Optional[int] = ...) -> None: ...

class LogLag(_message.Message):
    __slots__ = ("path", "bytes", "since_ns")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    path: str
    bytes: int
    since_ns: int
    def __init__(self, path: _Optional[str] = ..., bytes: _Optional[int] = ..., since_ns: _Optional[int] = ...) -> None: ...

class Lag(_message.Message):
    __slots__ = ("logs", "behind", "bytes", "oldest_ns", "worst")
    LOGS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_NS_FIELD_NUMBER: _ClassVar[int]
    WORST_FIELD_NUMBER: _ClassVar[int]
    logs: int
    behind: int
    bytes: int
    oldest_ns: int
    worst: _containers.RepeatedCompositeFieldContainer[LogLag]
    def __init__(self, logs: _Optional[int] = ..., behind: _Optional[int] = ..., bytes: _Optional[int] = ..., oldest_ns: _Optional[int] = ..., worst: _Optional[_Iterable[_Union[LogLag, _Mapping]]] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("datacentre", "join", "ledger", "bytes_read", "bytes_known", "in_flight", "stored", "waiting_for_home", "look_ups", "attempts", "oldest_first_read_ns", "head_start_ns", "homes", "caught_up", "problems", "lag", "stored_bytes", "oldest_stored_ns", "joiners_failing", "worker", "workers", "reopened", "reopened_missing")
    class LedgerEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class ProblemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_KNOWN_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_HOME_FIELD_NUMBER: _ClassVar[int]
    LOOK_UPS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIRST_READ_NS_FIELD_NUMBER: _ClassVar[int]
    HEAD_START_NS_FIELD_NUMBER: _ClassVar[int]
    HOMES_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    OLDEST_STORED_NS_FIELD_NUMBER: _ClassVar[int]
    JOINERS_FAILING_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    REOPENED_FIELD_NUMBER: _ClassVar[int]
    REOPENED_MISSING_FIELD_NUMBER: _ClassVar[int]
    datacentre: str
    join: str
    ledger: _containers.ScalarMap[str, int]
    bytes_read: int
    bytes_known: int
    in_flight: int
    stored: int
    waiting_for_home: int
    look_ups: int
    attempts: int
    oldest_first_read_ns: int
    head_start_ns: int
    homes: _containers.RepeatedCompositeFieldContainer[Home]
    caught_up: bool
    problems: _containers.ScalarMap[str, int]
    lag: Lag
    stored_bytes: int
    oldest_stored_ns: int
    joiners_failing: int
    worker: str
    workers: _containers.RepeatedScalarFieldContainer[str]
    reopened: int
    reopened_missing: int
    def __init__(self, datacentre: _Optional[str] = ..., join: _Optional[str] = ..., ledger: _Optional[_Mapping[str, int]] = ..., bytes_read: _Optional[int] = ..., bytes_known: _Optional[int] = ..., in_flight: _Optional[int] = ..., stored: _Optional[int] = ..., waiting_for_home: _Optional[int] = ..., look_ups: _Optional[int] = ..., attempts: _Optional[int] = ..., oldest_first_read_ns: _Optional[int] = ..., head_start_ns: _Optional[int] = ..., homes: _Optional[_Iterable[_Union[Home, _Mapping]]] = ..., caught_up: _Optional[bool] = ..., problems: _Optional[_Mapping[str, int]] = ..., lag: _Optional[_Union[Lag, _Mapping]] = ..., stored_bytes: _Optional[int] = ..., oldest_stored_ns: _Optional[int] = ..., joiners_failing: _Optional[int] = ..., worker: _Optional[str] = ..., workers: _Optional[_Iterable[str]] = ..., reopened: _Optional[int] = ..., reopened_missing: _Optional[int] = ...) -> None: ...
