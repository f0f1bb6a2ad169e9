from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class MetricsRequest(_message.Message):
    __slots__ = ("details", "no_text")
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    NO_TEXT_FIELD_NUMBER: _ClassVar[int]
    details: bool
    no_text: bool
    def __init__(self, details: _Optional[bool] = ..., no_text: _Optional[bool] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("text", "details")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    text: bytes
    details: bytes
    def __init__(self, text: _Optional[bytes] = ..., details: _Optional[bytes] = ...) -> None: ...
