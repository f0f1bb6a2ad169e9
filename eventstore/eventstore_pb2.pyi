from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventLookUpRequest(_message.Message):
    __slots__ = ("join", "keys", "as_of", "times")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    AS_OF_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    join: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    as_of: bytes
    times: bytes
    def __init__(self, join: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ..., as_of: _Optional[bytes] = ..., times: _Optional[bytes] = ...) -> None: ...

class LogFileName(_message.Message):
    __slots__ = ("path", "header")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    path: str
    header: bytes
    def __init__(self, path: _Optional[str] = ..., header: _Optional[bytes] = ...) -> None: ...

class EventLookUpReply(_message.Message):
    __slots__ = ("answers", "records", "files", "file_indexes", "offsets", "ambiguous_rows", "ambiguous_files", "ambiguous_offsets", "counts")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_INDEXES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_ROWS_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_FILES_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    answers: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    files: _containers.RepeatedCompositeFieldContainer[LogFileName]
    file_indexes: bytes
    offsets: bytes
    ambiguous_rows: _containers.RepeatedScalarFieldContainer[int]
    ambiguous_files: _containers.RepeatedCompositeFieldContainer[LogFileName]
    ambiguous_offsets: _containers.RepeatedScalarFieldContainer[int]
    counts: bytes
    def __init__(self, answers: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ..., files: _Optional[_Iterable[_Union[LogFileName, _Mapping]]] = ..., file_indexes: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., ambiguous_rows: _Optional[_Iterable[int]] = ..., ambiguous_files: _Optional[_Iterable[_Union[LogFileName, _Mapping]]] = ..., ambiguous_offsets: _Optional[_Iterable[int]] = ..., counts: _Optional[bytes] = ...) -> None: ...

class ProgressRequest(_message.Message):
    __slots__ = ("join", "details")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    join: str
    details: bool
    def __init__(self, join: _Optional[str] = ..., details: _Optional[bool] = ...) -> None: ...

class ProgressReply(_message.Message):
    __slots__ = ("read_past_ns", "events", "bytes_read", "bytes_known", "duplicates", "bad_records", "cache_hits", "cache_misses", "files", "missing_logs", "missing_keys", "log_reads", "log_bytes", "sources", "unavailable", "cache_bytes", "cache_evictions", "read_past_age_ns", "now_ns", "unended", "sought_keys", "sought_dropped", "sought_came", "ambiguous", "ambiguous_example")
    READ_PAST_NS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_KNOWN_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    CACHE_HITS_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISSES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    MISSING_LOGS_FIELD_NUMBER: _ClassVar[int]
    MISSING_KEYS_FIELD_NUMBER: _ClassVar[int]
    LOG_READS_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CACHE_EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    READ_PAST_AGE_NS_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    UNENDED_FIELD_NUMBER: _ClassVar[int]
    SOUGHT_KEYS_FIELD_NUMBER: _ClassVar[int]
    SOUGHT_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SOUGHT_CAME_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    read_past_ns: int
    events: int
    bytes_read: int
    bytes_known: int
    duplicates: int
    bad_records: int
    cache_hits: int
    cache_misses: int
    files: int
    missing_logs: int
    missing_keys: int
    log_reads: int
    log_bytes: int
    sources: _containers.RepeatedCompositeFieldContainer[PrimarySource]
    unavailable: _containers.RepeatedCompositeFieldContainer[UnavailableLog]
    cache_bytes: int
    cache_evictions: int
    read_past_age_ns: int
    now_ns: int
    unended: str
    sought_keys: int
    sought_dropped: int
    sought_came: int
    ambiguous: int
    ambiguous_example: str
    def __init__(self, read_past_ns: _Optional[int] = ..., events: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_known: _Optional[int] = ..., duplicates: _Optional[int] = ..., bad_records: _Optional[int] = ..., cache_hits: _Optional[int] = ..., cache_misses: _Optional[int] = ..., files: _Optional[int] = ..., missing_logs: _Optional[int] = ..., missing_keys: _Optional[int] = ..., log_reads: _Optional[int] = ..., log_bytes: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[PrimarySource, _Mapping]]] = ..., unavailable: _Optional[_Iterable[_Union[UnavailableLog, _Mapping]]] = ..., cache_bytes: _Optional[int] = ..., cache_evictions: _Optional[int] = ..., read_past_age_ns: _Optional[int] = ..., now_ns: _Optional[int] = ..., unended: _Optional[str] = ..., sought_keys: _Optional[int] = ..., sought_dropped: _Optional[int] = ..., sought_came: _Optional[int] = ..., ambiguous: _Optional[int] = ..., ambiguous_example: _Optional[str] = ...) -> None: ...

class ArrivedRequest(_message.Message):
    __slots__ = ("join", "epoch", "number", "wait_ms")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    join: str
    epoch: int
    number: int
    wait_ms: int
    def __init__(self, join: _Optional[str] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class ArrivedReply(_message.Message):
    __slots__ = ("epoch", "next", "keys", "lost")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    next: int
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    lost: bool
    def __init__(self, epoch: _Optional[int] = ..., next: _Optional[int] = ..., keys: _Optional[_Iterable[bytes]] = ..., lost: _Optional[bool] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ("join", "keys")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    join: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, join: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class SeekReply(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    def __init__(self, rows: _Optional[bytes] = ...) -> None: ...

class PrimarySource(_message.Message):
    __slots__ = ("path", "identity", "offset", "bytes_read", "bytes_known", "read_past_ns")
    PATH_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_READ_FIELD_NUMBER: _ClassVar[int]
    BYTES_KNOWN_FIELD_NUMBER: _ClassVar[int]
    READ_PAST_NS_FIELD_NUMBER: _ClassVar[int]
    path: str
    identity: str
    offset: int
    bytes_read: int
    bytes_known: int
    read_past_ns: int
    def __init__(self, path: _Optional[str] = ..., identity: _Optional[str] = ..., offset: _Optional[int] = ..., bytes_read: _Optional[int] = ..., bytes_known: _Optional[int] = ..., read_past_ns: _Optional[int] = ...) -> None: ...

class UnavailableLog(_message.Message):
    __slots__ = ("path", "identity", "why", "keys", "since_ns", "present", "forgotten")
    PATH_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    SINCE_NS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    path: str
    identity: str
    why: str
    keys: int
    since_ns: int
    present: bool
    forgotten: bool
    def __init__(self, path: _Optional[str] = ..., identity: _Optional[str] = ..., why: _Optional[str] = ..., keys: _Optional[int] = ..., since_ns: _Optional[int] = ..., present: _Optional[bool] = ..., forgotten: _Optional[bool] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("join", "logs", "apply")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    join: str
    logs: _containers.RepeatedScalarFieldContainer[str]
    apply: bool
    def __init__(self, join: _Optional[str] = ..., logs: _Optional[_Iterable[str]] = ..., apply: _Optional[bool] = ...) -> None: ...

class ForgetReply(_message.Message):
    __slots__ = ("logs", "refused")
    LOGS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    logs: _containers.RepeatedCompositeFieldContainer[UnavailableLog]
    refused: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, logs: _Optional[_Iterable[_Union[UnavailableLog, _Mapping]]] = ..., refused: _Optional[_Iterable[str]] = ...) -> None: ...

class CacheSegment(_message.Message):
    __slots__ = ("identity", "file", "data", "hashes", "starts", "offsets")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    identity: str
    file: LogFileName
    data: bytes
    hashes: bytes
    starts: bytes
    offsets: bytes
    def __init__(self, identity: _Optional[str] = ..., file: _Optional[_Union[LogFileName, _Mapping]] = ..., data: _Optional[bytes] = ..., hashes: _Optional[bytes] = ..., starts: _Optional[bytes] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class CacheFeed(_message.Message):
    __slots__ = ("source", "segments")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    segments: _containers.RepeatedCompositeFieldContainer[CacheSegment]
    def __init__(self, source: _Optional[bytes] = ..., segments: _Optional[_Iterable[_Union[CacheSegment, _Mapping]]] = ...) -> None: ...

class CacheFed(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CacheFind(_message.Message):
    __slots__ = ("source", "hashes")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    HASHES_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    hashes: bytes
    def __init__(self, source: _Optional[bytes] = ..., hashes: _Optional[bytes] = ...) -> None: ...

class CachedLog(_message.Message):
    __slots__ = ("identity", "file")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    identity: str
    file: LogFileName
    def __init__(self, identity: _Optional[str] = ..., file: _Optional[_Union[LogFileName, _Mapping]] = ...) -> None: ...

class CacheFound(_message.Message):
    __slots__ = ("rows", "log_indexes", "offsets", "sizes", "records", "logs")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOG_INDEXES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    LOGS_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    log_indexes: bytes
    offsets: bytes
    sizes: bytes
    records: bytes
    logs: _containers.RepeatedCompositeFieldContainer[CachedLog]
    def __init__(self, rows: _Optional[bytes] = ..., log_indexes: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., sizes: _Optional[bytes] = ..., records: _Optional[bytes] = ..., logs: _Optional[_Iterable[_Union[CachedLog, _Mapping]]] = ...) -> None: ...

class CacheCountsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CacheCountsReply(_message.Message):
    __slots__ = ("hits", "misses", "evictions", "segments", "held_bytes", "entries", "bytes_max", "fed_bytes", "fed_events")
    HITS_FIELD_NUMBER: _ClassVar[int]
    MISSES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    FED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    hits: int
    misses: int
    evictions: int
    segments: int
    held_bytes: int
    entries: int
    bytes_max: int
    fed_bytes: int
    fed_events: int
    def __init__(self, hits: _Optional[int] = ..., misses: _Optional[int] = ..., evictions: _Optional[int] = ..., segments: _Optional[int] = ..., held_bytes: _Optional[int] = ..., entries: _Optional[int] = ..., bytes_max: _Optional[int] = ..., fed_bytes: _Optional[int] = ..., fed_events: _Optional[int] = ...) -> None: ...
