from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_UNSPECIFIED: _ClassVar[Status]
    STATUS_OK: _ClassVar[Status]
    STATUS_NOT_LEADER: _ClassVar[Status]
    STATUS_OVERLOADED: _ClassVar[Status]
    STATUS_UNKNOWN: _ClassVar[Status]
    STATUS_WRONG_SHARD: _ClassVar[Status]
    STATUS_UNKNOWN_CALLER: _ClassVar[Status]
    STATUS_REFUSED: _ClassVar[Status]
STATUS_UNSPECIFIED: Status
STATUS_OK: Status
STATUS_NOT_LEADER: Status
STATUS_OVERLOADED: Status
STATUS_UNKNOWN: Status
STATUS_WRONG_SHARD: Status
STATUS_UNKNOWN_CALLER: Status
STATUS_REFUSED: Status

class SlotName(_message.Message):
    __slots__ = ("slot", "datacentre", "address", "incarnations")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    slot: str
    datacentre: str
    address: str
    incarnations: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[str] = ..., datacentre: _Optional[str] = ..., address: _Optional[str] = ..., incarnations: _Optional[_Iterable[int]] = ...) -> None: ...

class OpenSlotRequest(_message.Message):
    __slots__ = ("slot", "last", "nonce")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    slot: SlotName
    last: int
    nonce: bytes
    def __init__(self, slot: _Optional[_Union[SlotName, _Mapping]] = ..., last: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class OpenSlotReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "incarnation", "newest")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    incarnation: int
    newest: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., incarnation: _Optional[int] = ..., newest: _Optional[int] = ...) -> None: ...

class InsertRequest(_message.Message):
    __slots__ = ("shard", "caller", "slot", "digests", "times", "tokens", "kinds", "tags", "generations")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    caller: int
    slot: SlotName
    digests: bytes
    times: bytes
    tokens: bytes
    kinds: bytes
    tags: bytes
    generations: bytes
    def __init__(self, shard: _Optional[int] = ..., caller: _Optional[int] = ..., slot: _Optional[_Union[SlotName, _Mapping]] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., kinds: _Optional[bytes] = ..., tags: _Optional[bytes] = ..., generations: _Optional[bytes] = ...) -> None: ...

class InsertReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "answers", "owner_tokens", "owner_kinds", "owner_tags", "owner_datacentres", "datacentres")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OWNER_KINDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_TAGS_FIELD_NUMBER: _ClassVar[int]
    OWNER_DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    answers: bytes
    owner_tokens: bytes
    owner_kinds: bytes
    owner_tags: bytes
    owner_datacentres: bytes
    datacentres: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., answers: _Optional[bytes] = ..., owner_tokens: _Optional[bytes] = ..., owner_kinds: _Optional[bytes] = ..., owner_tags: _Optional[bytes] = ..., owner_datacentres: _Optional[bytes] = ..., datacentres: _Optional[_Iterable[str]] = ...) -> None: ...

class ClearRequest(_message.Message):
    __slots__ = ("shard", "digests", "times", "tokens")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    digests: bytes
    times: bytes
    tokens: bytes
    def __init__(self, shard: _Optional[int] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ..., tokens: _Optional[bytes] = ...) -> None: ...

class ClearReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "answers")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    answers: bytes
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., answers: _Optional[bytes] = ...) -> None: ...

class LookUpRequest(_message.Message):
    __slots__ = ("shard", "digests", "times")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    digests: bytes
    times: bytes
    def __init__(self, shard: _Optional[int] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ...) -> None: ...

class LookUpReply(_message.Message):
    __slots__ = ("status", "reason", "answers", "owner_kinds", "owner_tags", "owner_datacentres", "datacentres", "led")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_KINDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_TAGS_FIELD_NUMBER: _ClassVar[int]
    OWNER_DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    LED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    reason: str
    answers: bytes
    owner_kinds: bytes
    owner_tags: bytes
    owner_datacentres: bytes
    datacentres: _containers.RepeatedScalarFieldContainer[str]
    led: bool
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., reason: _Optional[str] = ..., answers: _Optional[bytes] = ..., owner_kinds: _Optional[bytes] = ..., owner_tags: _Optional[bytes] = ..., owner_datacentres: _Optional[bytes] = ..., datacentres: _Optional[_Iterable[str]] = ..., led: _Optional[bool] = ...) -> None: ...

class ShardRange(_message.Message):
    __slots__ = ("start_ns", "end_ns", "shards")
    START_NS_FIELD_NUMBER: _ClassVar[int]
    END_NS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    start_ns: int
    end_ns: int
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start_ns: _Optional[int] = ..., end_ns: _Optional[int] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupStatus(_message.Message):
    __slots__ = ("group", "leader", "term", "applied", "ids", "is_leader", "batches", "batch_mean", "commit_ms_p50", "commit_ms_p99")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BATCH_MEAN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_P50_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_P99_FIELD_NUMBER: _ClassVar[int]
    group: int
    leader: str
    term: int
    applied: int
    ids: int
    is_leader: bool
    batches: int
    batch_mean: float
    commit_ms_p50: float
    commit_ms_p99: float
    def __init__(self, group: _Optional[int] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., applied: _Optional[int] = ..., ids: _Optional[int] = ..., is_leader: _Optional[bool] = ..., batches: _Optional[int] = ..., batch_mean: _Optional[float] = ..., commit_ms_p50: _Optional[float] = ..., commit_ms_p99: _Optional[float] = ...) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("replica", "ranges", "groups", "id_rules")
    class IdRulesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ID_RULES_FIELD_NUMBER: _ClassVar[int]
    replica: str
    ranges: _containers.RepeatedCompositeFieldContainer[ShardRange]
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    id_rules: _containers.ScalarMap[str, bytes]
    def __init__(self, replica: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[ShardRange, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., id_rules: _Optional[_Mapping[str, bytes]] = ...) -> None: ...
