from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Refusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_NONE: _ClassVar[Refusal]
    REFUSAL_STRANGER: _ClassVar[Refusal]
    REFUSAL_OTHER_DISK: _ClassVar[Refusal]
REFUSAL_NONE: Refusal
REFUSAL_STRANGER: Refusal
REFUSAL_OTHER_DISK: Refusal

class PeerFrame(_message.Message):
    __slots__ = ("sender", "receiver", "disk", "epoch", "messages")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    sender: str
    receiver: str
    disk: bytes
    epoch: int
    messages: _containers.RepeatedCompositeFieldContainer[PeerMessage]
    def __init__(self, sender: _Optional[str] = ..., receiver: _Optional[str] = ..., disk: _Optional[bytes] = ..., epoch: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[PeerMessage, _Mapping]]] = ...) -> None: ...

class PeerMessage(_message.Message):
    __slots__ = ("group", "payload")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    group: int
    payload: bytes
    def __init__(self, group: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class PeerAck(_message.Message):
    __slots__ = ("refusal", "reason")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    refusal: Refusal
    reason: str
    def __init__(self, refusal: _Optional[_Union[Refusal, str]] = ..., reason: _Optional[str] = ...) -> None: ...
