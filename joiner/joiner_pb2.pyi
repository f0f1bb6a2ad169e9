from photon.eventstore import eventstore_pb2 as _eventstore_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("join", "ids", "digests", "times", "keys", "records", "files", "file_indexes", "offsets", "unmatched_as_of", "generations")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILE_INDEXES_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    UNMATCHED_AS_OF_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    join: str
    ids: _containers.RepeatedScalarFieldContainer[bytes]
    digests: bytes
    times: bytes
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    files: _containers.RepeatedCompositeFieldContainer[_eventstore_pb2.LogFileName]
    file_indexes: bytes
    offsets: bytes
    unmatched_as_of: bytes
    generations: bytes
    def __init__(self, join: _Optional[str] = ..., ids: _Optional[_Iterable[bytes]] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ..., keys: _Optional[_Iterable[bytes]] = ..., records: _Optional[_Iterable[bytes]] = ..., files: _Optional[_Iterable[_Union[_eventstore_pb2.LogFileName, _Mapping]]] = ..., file_indexes: _Optional[bytes] = ..., offsets: _Optional[bytes] = ..., unmatched_as_of: _Optional[bytes] = ..., generations: _Optional[bytes] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("overloaded", "outcomes", "kinds", "reason_of", "reasons", "owner_datacentres", "owner_of", "same_lines", "owner_times", "owner_tokens", "ambiguous", "unpaired")
    OVERLOADED_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    REASON_OF_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    OWNER_DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    OWNER_OF_FIELD_NUMBER: _ClassVar[int]
    SAME_LINES_FIELD_NUMBER: _ClassVar[int]
    OWNER_TIMES_FIELD_NUMBER: _ClassVar[int]
    OWNER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AMBIGUOUS_FIELD_NUMBER: _ClassVar[int]
    UNPAIRED_FIELD_NUMBER: _ClassVar[int]
    overloaded: bool
    outcomes: bytes
    kinds: bytes
    reason_of: _containers.RepeatedScalarFieldContainer[int]
    reasons: _containers.RepeatedScalarFieldContainer[str]
    owner_datacentres: _containers.RepeatedScalarFieldContainer[str]
    owner_of: _containers.RepeatedScalarFieldContainer[int]
    same_lines: bytes
    owner_times: bytes
    owner_tokens: bytes
    ambiguous: _containers.RepeatedScalarFieldContainer[int]
    unpaired: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, overloaded: _Optional[bool] = ..., outcomes: _Optional[bytes] = ..., kinds: _Optional[bytes] = ..., reason_of: _Optional[_Iterable[int]] = ..., reasons: _Optional[_Iterable[str]] = ..., owner_datacentres: _Optional[_Iterable[str]] = ..., owner_of: _Optional[_Iterable[int]] = ..., same_lines: _Optional[bytes] = ..., owner_times: _Optional[bytes] = ..., owner_tokens: _Optional[bytes] = ..., ambiguous: _Optional[_Iterable[int]] = ..., unpaired: _Optional[_Iterable[int]] = ...) -> None: ...
