from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class TakeRequest(_message.Message):
    __slots__ = ("count",)
    COUNT_FIELD_NUMBER: _ClassVar[int]
    count: int
    def __init__(self, count: _Optional[int] = ...) -> None: ...

class TakeReply(_message.Message):
    __slots__ = ("first", "leader_hint", "reason")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first: int
    leader_hint: str
    reason: str
    def __init__(self, first: _Optional[int] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
