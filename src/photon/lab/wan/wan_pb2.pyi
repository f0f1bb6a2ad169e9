from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Fault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_NONE: _ClassVar[Fault]
    FAULT_DROP: _ClassVar[Fault]
    FAULT_RESET: _ClassVar[Fault]
    FAULT_REFUSE: _ClassVar[Fault]
FAULT_NONE: Fault
FAULT_DROP: Fault
FAULT_RESET: Fault
FAULT_REFUSE: Fault

class Direction(_message.Message):
    __slots__ = ("source", "destination", "delay_ns", "fault", "bytes", "connections")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DELAY_NS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    source: str
    destination: str
    delay_ns: int
    fault: Fault
    bytes: int
    connections: int
    def __init__(self, source: _Optional[str] = ..., destination: _Optional[str] = ..., delay_ns: _Optional[int] = ..., fault: _Optional[_Union[Fault, str]] = ..., bytes: _Optional[int] = ..., connections: _Optional[int] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("source", "destination", "delay_ns", "fault")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    DELAY_NS_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    source: str
    destination: str
    delay_ns: int
    fault: Fault
    def __init__(self, source: _Optional[str] = ..., destination: _Optional[str] = ..., delay_ns: _Optional[int] = ..., fault: _Optional[_Union[Fault, str]] = ...) -> None: ...

class SetRequest(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class SetReply(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: str
    def __init__(self, error: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("directions",)
    DIRECTIONS_FIELD_NUMBER: _ClassVar[int]
    directions: _containers.RepeatedCompositeFieldContainer[Direction]
    def __init__(self, directions: _Optional[_Iterable[_Union[Direction, _Mapping]]] = ...) -> None: ...
