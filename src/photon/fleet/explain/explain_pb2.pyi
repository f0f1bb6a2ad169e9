from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class EventRequest(_message.Message):
    __slots__ = ("event_id", "file", "offset", "timed", "time_ns", "logs", "memory_only", "registry")
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMED_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ONLY_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    event_id: bytes
    file: str
    offset: int
    timed: bool
    time_ns: int
    logs: bool
    memory_only: bool
    registry: bool
    def __init__(self, event_id: _Optional[bytes] = ..., file: _Optional[str] = ..., offset: _Optional[int] = ..., timed: _Optional[bool] = ..., time_ns: _Optional[int] = ..., logs: _Optional[bool] = ..., memory_only: _Optional[bool] = ..., registry: _Optional[bool] = ...) -> None: ...

class EventReply(_message.Message):
    __slots__ = ("evidence",)
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    evidence: bytes
    def __init__(self, evidence: _Optional[bytes] = ...) -> None: ...
