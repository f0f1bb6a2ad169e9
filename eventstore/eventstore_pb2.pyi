from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventLookUpRequest(_message.Message):
    __slots__ = ("join", "keys", "as_of")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    join: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    as_of: bytes
    def __init__(self, join: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ..., as_of: _Optional[bytes] = ...) -> None: ...

class LogFileName(_message.Message):
    __slots__ = ("path", "header")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    path: str
    header: bytes
    def __init__(self, path: _Optional[str] = ..., header: _Optional[bytes] = ...) -> None: ...

class EventLookUpReply(_message.Message):
    __slots__ = ("answers", "records", "files", "file_indexes", "offsets")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_INDEXES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    answers: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    files: _containers.RepeatedCompositeFieldContainer[LogFileName]
    file_indexes: bytes
    offsets: bytes
    def __init__(self, answers: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ..., files: _Optional[_Iterable[_Union[LogFileName, _Mapping]]] = ..., file_indexes: _Optional[bytes] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class ProgressRequest(_message.Message):
    __slots__ = ("join",)
    JOIN_FIELD_NUMBER: _ClassVar[int]
    join: str
    def __init__(self, join: _Optional[str] = ...) -> None: ...

class ProgressReply(_message.Message):
    __slots__ = ("read_past_ns", "events", "bytes_read", "bytes_known", "duplicates", "bad_records", "cache_hits", "cache_misses", "files")
    READ_PAST_NS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_KNOWN_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    read_past_ns: int
    events: int
    bytes_read: int
    bytes_known: int
    duplicates: int
    bad_records: int
    cache_hits: int
    cache_misses: int
    files: int
    def __init__(self, read_past_ns: _Optional[int] = ..., events: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_known: _Optional[int] = ..., duplicates: _Optional[int] = ..., bad_records: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., files: _Optional[int] = ...) -> None: ...
