from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CopyEnd(_message.Message):
    __slots__ = ("number", "length", "hash")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    number: int
    length: int
    hash: bytes
    def __init__(self, number: _Optional[int] = ..., length: _Optional[int] = ..., hash: _Optional[bytes] = ...) -> None: ...

class OpenCopy(_message.Message):
    __slots__ = ("datacentre", "slot", "incarnation")
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    datacentre: str
    slot: str
    incarnation: int
    def __init__(self, datacentre: _Optional[str] = ..., slot: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class LookCopy(_message.Message):
    __slots__ = ("datacentre", "slot")
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    datacentre: str
    slot: str
    def __init__(self, datacentre: _Optional[str] = ..., slot: _Optional[str] = ...) -> None: ...

class CopyPart(_message.Message):
    __slots__ = ("log", "number", "data")
    LOG_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    log: int
    number: int
    data: bytes
    def __init__(self, log: _Optional[int] = ..., number: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ExtendCopy(_message.Message):
    __slots__ = ("datacentre", "slot", "incarnation", "ends", "parts", "shown")
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    datacentre: str
    slot: str
    incarnation: int
    ends: _containers.RepeatedCompositeFieldContainer[CopyEnd]
    parts: _containers.RepeatedCompositeFieldContainer[CopyPart]
    shown: _containers.RepeatedCompositeFieldContainer[CopyEnd]
    def __init__(self, datacentre: _Optional[str] = ..., slot: _Optional[str] = ..., incarnation: _Optional[int] = ..., ends: _Optional[_Iterable[_Union[CopyEnd, _Mapping]]] = ..., parts: _Optional[_Iterable[_Union[CopyPart, _Mapping]]] = ..., shown: _Optional[_Iterable[_Union[CopyEnd, _Mapping]]] = ...) -> None: ...

class CopyState(_message.Message):
    __slots__ = ("status", "newest", "ends", "reason")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: int
    newest: int
    ends: _containers.RepeatedCompositeFieldContainer[CopyEnd]
    reason: str
    def __init__(self, status: _Optional[int] = ..., newest: _Optional[int] = ..., ends: _Optional[_Iterable[_Union[CopyEnd, _Mapping]]] = ..., reason: _Optional[str] = ...) -> None: ...

class ReadCopy(_message.Message):
    __slots__ = ("datacentre", "slot", "log", "number", "offset")
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    datacentre: str
    slot: str
    log: int
    number: int
    offset: int
    def __init__(self, datacentre: _Optional[str] = ..., slot: _Optional[str] = ..., log: _Optional[int] = ..., number: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class CopyPiece(_message.Message):
    __slots__ = ("there", "size", "data")
    THERE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    there: bool
    size: int
    data: bytes
    def __init__(self, there: _Optional[bool] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...
