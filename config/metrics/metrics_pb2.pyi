from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class MetricsRequest(_message.Message):
    __slots__ = ("details", "no_samples")
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    NO_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    details: bool
    no_samples: bool
    def __init__(self, details: _Optional[bool] = ..., no_samples: _Optional[bool] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("samples", "details")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    samples: bytes
    details: bytes
    def __init__(self, samples: _Optional[bytes] = ..., details: _Optional[bytes] = ...) -> None: ...
