"""Length-delimited protobuf messages of one type, described by a descriptor file. Records arrive as base64.

Fields are named by dotted paths of the .proto's names (``query.id``). A key or id is a string, bytes, or an integer's
decimal text; unset or empty ones are not keys, nor is 0 in a field that does not distinguish 0 from unset. The time
is an integer, a floating-point number (its shortest decimal text), text, or a google.protobuf.Timestamp.

The payload is protobuf's own JSON with the names of the .proto: 64-bit integers are strings, bytes base64. Fields
unknown to the descriptor are kept: if there are any, at any depth, ``message_raw_base64`` holds the whole message.
(``logs.varint_source`` makes the base64 of the records.)
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from photon.adapters.contract import AdapterError, BadRecord, LogFile
from photon.adapters.formats.base import FieldsSide
from photon.adapters.times import TimeReader

DESCRIPTOR_BYTES_MAX = 16 << 20
PATH_PARTS_MAX = 16
EMPTY = b"="  # The line of an empty message: a blank line would not be a record
RAW_NAME = "message_raw_base64"
_TIMESTAMP = "google.protobuf.Timestamp"
_F = FieldDescriptor
_INTEGERS = frozenset({_F.CPPTYPE_INT32, _F.CPPTYPE_INT64, _F.CPPTYPE_UINT32, _F.CPPTYPE_UINT64, _F.CPPTYPE_ENUM})
_FLOATS = frozenset({_F.CPPTYPE_DOUBLE, _F.CPPTYPE_FLOAT})
Getter = Callable[[Message], bytes]


def message_type(data: bytes, name: str, where: str) -> Descriptor:
    """Returns the descriptor of the message with this full name from a FileDescriptorSet. Raises AdapterError."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(data)
    except DecodeError:
        files.Clear()
    if not files.file:
        todo = "make it with protoc --include_imports --descriptor_set_out=FILE"
        raise AdapterError("descriptor is not a FileDescriptorSet", where, todo)
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except (KeyError, TypeError) as error:
        known = [f"{file.package}.{each.name}".lstrip(".") for file in files.file for each in file.message_type]
        if name in known:
            why = " ".join(str(error).split())[:200]
            raise AdapterError(
                f"descriptor is incomplete ({why})", where, "make it with protoc --include_imports"
            ) from None
        raise AdapterError(f"message = {name!r} is not in the descriptor", where, f"known: {known[:20]}") from None


def read_descriptor(path: Path, where: str) -> bytes:
    """Returns the file's bytes. Raises AdapterError."""
    try:
        with path.open("rb") as file:
            data = file.read(DESCRIPTOR_BYTES_MAX + 1)
    except OSError as error:
        raise AdapterError(
            f"descriptor {path} cannot be read ({error.strerror})", where, "correct the path"
        ) from None
    if len(data) > DESCRIPTOR_BYTES_MAX:
        raise AdapterError(f"descriptor {path} is larger than {DESCRIPTOR_BYTES_MAX} bytes", where, "leave files out")
    return data


class ProtobufSide(FieldsSide[Message]):
    def __init__(
        self,
        message: Descriptor,
        key: str,
        id_field: str | None = None,
        time_field: str | None = None,
        time: TimeReader | None = None,
        *,
        where: str = "join",
    ) -> None:
        """Raises AdapterError if a path is not a field of the message."""
        super().__init__(key, id_field, time_field, time)
        self._parse = message_factory.GetMessageClass(message).FromString
        places = {role: f"{where}.{'time.field' if role == 'time' else role}" for role in self._names}
        self._get = {role: _getter(message, name, role, places[role]) for role, name in self._names.items()}
        self.numbers = {role: _numbers(message, name, places[role]) for role, name in self._names.items()}

    def payload(self, record: bytes, file: LogFile) -> bytes | None:
        message = self._fields(record, file)
        try:
            fields: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
        except (ValueError, json_format.Error) as error:  # a Timestamp out of range, an Any of unknown type
            fields = {"unreadable": " ".join(str(error).split())[:200], RAW_NAME: record.decode("ascii")}
        else:
            if has_unknown(message):
                fields[RAW_NAME] = record.decode("ascii")
        return orjson.dumps(fields)

    def _fields(self, record: bytes, file: LogFile) -> Message:
        try:
            return self._parse(b"" if record == EMPTY else binascii.a2b_base64(record, strict_mode=True))
        except binascii.Error:
            raise BadRecord("is not the base64 of a message") from None
        except DecodeError:
            raise BadRecord("is not a protobuf message of this type") from None

    def _value(self, fields: Message, role: str) -> bytes:
        return self._get[role](fields)


def has_unknown(message: Message) -> bool:
    """True if the message has a field unknown to the descriptor, at any depth."""
    if len(UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is None:
            continue
        inner: Iterable[Any] = value if field.is_repeated else (value,)
        if kind.GetOptions().map_entry:
            inner = value.values() if kind.fields_by_name["value"].message_type is not None else ()
        if any(map(has_unknown, inner)):
            return True
    return False


def _path(message: Descriptor, path: str, where: str) -> list[FieldDescriptor]:
    """Returns the fields of a dotted path. Raises AdapterError."""
    fields: list[FieldDescriptor] = []
    at: Descriptor | None = message
    for part in path.split(".")[: PATH_PARTS_MAX + 1]:
        field = None if at is None or len(fields) == PATH_PARTS_MAX else at.fields_by_name.get(part)
        if field is None:
            there = ", ".join(sorted(at.fields_by_name)[:20]) if at is not None else "no fields below it"
            raise AdapterError(f"{path!r} is not a field of {message.full_name}", where, f"there is {there}")
        if field.is_repeated:
            raise AdapterError(f"{path!r} leads through a repeated field", where, "name a field that is not repeated")
        fields.append(field)
        at = field.message_type
    return fields


def _numbers(message: Descriptor, path: str, where: str) -> list[list[int]]:
    """Returns [number, type] of each field on the path. These identify a field even if it is renamed."""
    return [[field.number, field.type] for field in _path(message, path, where)]


def _getter(message: Descriptor, path: str, role: str, where: str) -> Getter:
    fields = _path(message, path, where)
    *outer, last = fields
    names = [field.name for field in outer]
    optional = {field.name for field in outer}
    text = _text_of(last, role, where, path)
    checked = last.has_presence

    def get(message: Message) -> bytes:
        at: Any = message
        for name in names:
            if name in optional and not at.HasField(name):
                raise BadRecord(f"{role} field {path!r} is missing")
            at = getattr(at, name)
        if checked and not at.HasField(last.name):
            raise BadRecord(f"{role} field {path!r} is missing")
        value = text(getattr(at, last.name))
        if not value or (not checked and role != "time" and value == b"0" and last.cpp_type in _INTEGERS):
            raise BadRecord(f"{role} field {path!r} is empty")
        return value

    return get


def _text_of(field: FieldDescriptor, role: str, where: str, path: str) -> Callable[[Any], bytes]:
    kind = field.cpp_type
    if kind == _F.CPPTYPE_STRING:
        return bytes if field.type == _F.TYPE_BYTES else str.encode
    if kind in _INTEGERS:
        return lambda value: b"%d" % value
    if role == "time" and kind in _FLOATS:
        return lambda value: repr(value).encode()
    if role == "time" and field.message_type is not None and field.message_type.full_name == _TIMESTAMP:
        return lambda value: b"%d" % (value.seconds * 10**9 + value.nanos)
    wanted = "an integer, a number, text or a Timestamp" if role == "time" else "a string, bytes or an integer"
    raise AdapterError(f"{path!r} cannot be the {role}", where, f"name a field that is {wanted}")
