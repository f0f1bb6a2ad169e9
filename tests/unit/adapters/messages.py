"""A protobuf message for tests: its descriptor file, and logs of such messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

F = descriptor_pb2.FieldDescriptorProto


def descriptor_set(*, extra: Sequence[str] = ()) -> bytes:
    """The FileDescriptorSet of ``test.Event``; ``extra``: string fields (20 and on) that it adds."""
    file = descriptor_pb2.FileDescriptorProto(name="event.proto", package="test", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    key = file.message_type.add(name="Key")
    key.field.add(name="name", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    event = file.message_type.add(name="Event")
    event.field.add(name="key", number=1, type=F.TYPE_MESSAGE, type_name=".test.Key", label=F.LABEL_OPTIONAL)
    event.field.add(name="text", number=2, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    event.field.add(name="number", number=3, type=F.TYPE_UINT64, label=F.LABEL_OPTIONAL)
    event.field.add(name="raw", number=4, type=F.TYPE_BYTES, label=F.LABEL_OPTIONAL)
    event.field.add(name="seconds", number=5, type=F.TYPE_DOUBLE, label=F.LABEL_OPTIONAL)
    stamp = ".google.protobuf.Timestamp"
    event.field.add(name="at", number=6, type=F.TYPE_MESSAGE, type_name=stamp, label=F.LABEL_OPTIONAL)
    event.field.add(name="keys", number=7, type=F.TYPE_MESSAGE, type_name=".test.Key", label=F.LABEL_REPEATED)
    for number, name in enumerate(extra, 20):
        event.field.add(name=name, number=number, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
        key.field.add(name=name, number=number, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    return descriptor_pb2.FileDescriptorSet(file=[time, file]).SerializeToString()


def event_class(data: bytes) -> Any:
    """The class of ``test.Event`` by this descriptor set."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("test.Event"))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def delimited(messages: Iterable[bytes]) -> bytes:
    """Each behind its length."""
    return b"".join(varint(len(message)) + message for message in messages)


def write_messages(descriptor: Path, rows: Iterable[tuple[str, str]]) -> bytes:
    """A log of events of these keys and texts, and the file with their descriptor."""
    descriptor.write_bytes(descriptor_set())
    event = event_class(descriptor.read_bytes())
    return delimited(event(key={"name": key}, text=text).SerializeToString() for key, text in rows)
