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

class ClockAgreement(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLOCK_AGREEMENT_UNSPECIFIED: _ClassVar[ClockAgreement]
    CLOCK_AGREEMENT_AGREES: _ClassVar[ClockAgreement]
    CLOCK_AGREEMENT_APART: _ClassVar[ClockAgreement]
    CLOCK_AGREEMENT_UNCERTAIN: _ClassVar[ClockAgreement]

class ReshardAction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESHARD_ACTION_UNSPECIFIED: _ClassVar[ReshardAction]
    RESHARD_ACTION_STATUS: _ClassVar[ReshardAction]
    RESHARD_ACTION_PLAN: _ClassVar[ReshardAction]
    RESHARD_ACTION_APPLY: _ClassVar[ReshardAction]
    RESHARD_ACTION_ABORT: _ClassVar[ReshardAction]
    RESHARD_ACTION_VERIFY: _ClassVar[ReshardAction]

class ShardChangeStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARD_CHANGE_STAGE_UNSPECIFIED: _ClassVar[ShardChangeStage]
    SHARD_CHANGE_STAGE_PLANNED: _ClassVar[ShardChangeStage]
    SHARD_CHANGE_STAGE_PREPARING: _ClassVar[ShardChangeStage]
    SHARD_CHANGE_STAGE_ACTIVATED: _ClassVar[ShardChangeStage]
    SHARD_CHANGE_STAGE_ABORTED: _ClassVar[ShardChangeStage]
STATUS_UNSPECIFIED: Status
STATUS_OK: Status
STATUS_NOT_LEADER: Status
STATUS_OVERLOADED: Status
STATUS_UNKNOWN: Status
STATUS_WRONG_SHARD: Status
STATUS_UNKNOWN_CALLER: Status
STATUS_REFUSED: Status
CLOCK_AGREEMENT_UNSPECIFIED: ClockAgreement
CLOCK_AGREEMENT_AGREES: ClockAgreement
CLOCK_AGREEMENT_APART: ClockAgreement
CLOCK_AGREEMENT_UNCERTAIN: ClockAgreement
RESHARD_ACTION_UNSPECIFIED: ReshardAction
RESHARD_ACTION_STATUS: ReshardAction
RESHARD_ACTION_PLAN: ReshardAction
RESHARD_ACTION_APPLY: ReshardAction
RESHARD_ACTION_ABORT: ReshardAction
RESHARD_ACTION_VERIFY: ReshardAction
SHARD_CHANGE_STAGE_UNSPECIFIED: ShardChangeStage
SHARD_CHANGE_STAGE_PLANNED: ShardChangeStage
SHARD_CHANGE_STAGE_PREPARING: ShardChangeStage
SHARD_CHANGE_STAGE_ACTIVATED: ShardChangeStage
SHARD_CHANGE_STAGE_ABORTED: ShardChangeStage

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
    __slots__ = ("status", "leader_hint", "reason", "incarnation", "newest", "witness")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    incarnation: int
    newest: int
    witness: _containers.RepeatedCompositeFieldContainer[WitnessLog]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., incarnation: _Optional[int] = ..., newest: _Optional[int] = ..., witness: _Optional[_Iterable[_Union[WitnessLog, _Mapping]]] = ...) -> None: ...

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
    __slots__ = ("status", "leader_hint", "reason", "answers", "owner_tokens", "owner_kinds", "owner_tags", "owner_datacentres", "datacentres", "owner_times")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OWNER_KINDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_TAGS_FIELD_NUMBER: _ClassVar[int]
    OWNER_DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    OWNER_TIMES_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    answers: bytes
    owner_tokens: bytes
    owner_kinds: bytes
    owner_tags: bytes
    owner_datacentres: bytes
    datacentres: _containers.RepeatedScalarFieldContainer[str]
    owner_times: bytes
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., answers: _Optional[bytes] = ..., owner_tokens: _Optional[bytes] = ..., owner_kinds: _Optional[bytes] = ..., owner_tags: _Optional[bytes] = ..., owner_datacentres: _Optional[bytes] = ..., datacentres: _Optional[_Iterable[str]] = ..., owner_times: _Optional[bytes] = ...) -> None: ...

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
    __slots__ = ("status", "reason", "answers", "owner_kinds", "owner_tags", "owner_datacentres", "datacentres", "owner_times", "led")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    OWNER_KINDS_FIELD_NUMBER: _ClassVar[int]
    OWNER_TAGS_FIELD_NUMBER: _ClassVar[int]
    OWNER_DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    DATACENTRES_FIELD_NUMBER: _ClassVar[int]
    OWNER_TIMES_FIELD_NUMBER: _ClassVar[int]
    LED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    reason: str
    answers: bytes
    owner_kinds: bytes
    owner_tags: bytes
    owner_datacentres: bytes
    datacentres: _containers.RepeatedScalarFieldContainer[str]
    owner_times: bytes
    led: bool
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., reason: _Optional[str] = ..., answers: _Optional[bytes] = ..., owner_kinds: _Optional[bytes] = ..., owner_tags: _Optional[bytes] = ..., owner_datacentres: _Optional[bytes] = ..., datacentres: _Optional[_Iterable[str]] = ..., owner_times: _Optional[bytes] = ..., led: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("group", "leader", "term", "applied", "ids", "is_leader", "batches", "batch_mean", "commit_ms_p50", "commit_ms_p99", "writable", "bytes", "overloaded", "checked_entry", "checked_hash", "checked_form", "alarms")
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
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    OVERLOADED_FIELD_NUMBER: _ClassVar[int]
    CHECKED_ENTRY_FIELD_NUMBER: _ClassVar[int]
    CHECKED_HASH_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FORM_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
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
    writable: bool
    bytes: int
    overloaded: int
    checked_entry: int
    checked_hash: bytes
    checked_form: int
    alarms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[int] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., applied: _Optional[int] = ..., ids: _Optional[int] = ..., is_leader: _Optional[bool] = ..., batches: _Optional[int] = ..., batch_mean: _Optional[float] = ..., commit_ms_p50: _Optional[float] = ..., commit_ms_p99: _Optional[float] = ..., writable: _Optional[bool] = ..., bytes: _Optional[int] = ..., overloaded: _Optional[int] = ..., checked_entry: _Optional[int] = ..., checked_hash: _Optional[bytes] = ..., checked_form: _Optional[int] = ..., alarms: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeReply(_message.Message):
    __slots__ = ("replica", "ranges", "groups", "id_rules", "config", "clock", "removed")
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
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    replica: str
    ranges: _containers.RepeatedCompositeFieldContainer[ShardRange]
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    id_rules: _containers.ScalarMap[str, bytes]
    config: int
    clock: ClockStatus
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, replica: _Optional[str] = ..., ranges: _Optional[_Iterable[_Union[ShardRange, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ..., id_rules: _Optional[_Mapping[str, bytes]] = ..., config: _Optional[int] = ..., clock: _Optional[_Union[ClockStatus, _Mapping]] = ..., removed: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadClockRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadClockReply(_message.Message):
    __slots__ = ("now_ns",)
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    now_ns: int
    def __init__(self, now_ns: _Optional[int] = ...) -> None: ...

class ClockOffset(_message.Message):
    __slots__ = ("replica", "known", "low_ns", "high_ns")
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    LOW_NS_FIELD_NUMBER: _ClassVar[int]
    HIGH_NS_FIELD_NUMBER: _ClassVar[int]
    replica: str
    known: bool
    low_ns: int
    high_ns: int
    def __init__(self, replica: _Optional[str] = ..., known: _Optional[bool] = ..., low_ns: _Optional[int] = ..., high_ns: _Optional[int] = ...) -> None: ...

class ClockStatus(_message.Message):
    __slots__ = ("now_ns", "error_ns", "synchronised", "agreement", "median", "peers", "objection")
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    ERROR_NS_FIELD_NUMBER: _ClassVar[int]
    SYNCHRONISED_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    OBJECTION_FIELD_NUMBER: _ClassVar[int]
    now_ns: int
    error_ns: int
    synchronised: bool
    agreement: ClockAgreement
    median: ClockOffset
    peers: _containers.RepeatedCompositeFieldContainer[ClockOffset]
    objection: str
    def __init__(self, now_ns: _Optional[int] = ..., error_ns: _Optional[int] = ..., synchronised: _Optional[bool] = ..., agreement: _Optional[_Union[ClockAgreement, str]] = ..., median: _Optional[_Union[ClockOffset, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[ClockOffset, _Mapping]]] = ..., objection: _Optional[str] = ...) -> None: ...

class ReshardRequest(_message.Message):
    __slots__ = ("action", "shards", "dry_run", "lead_ms", "config")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    LEAD_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    action: ReshardAction
    shards: int
    dry_run: bool
    lead_ms: int
    config: int
    def __init__(self, action: _Optional[_Union[ReshardAction, str]] = ..., shards: _Optional[int] = ..., dry_run: _Optional[bool] = ..., lead_ms: _Optional[int] = ..., config: _Optional[int] = ...) -> None: ...

class ShardChange(_message.Message):
    __slots__ = ("config", "starts_ns", "shards", "added", "leaving", "stage", "reason", "settled")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    STARTS_NS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    config: int
    starts_ns: int
    shards: _containers.RepeatedScalarFieldContainer[int]
    added: _containers.RepeatedScalarFieldContainer[int]
    leaving: _containers.RepeatedScalarFieldContainer[int]
    stage: ShardChangeStage
    reason: str
    settled: bool
    def __init__(self, config: _Optional[int] = ..., starts_ns: _Optional[int] = ..., shards: _Optional[_Iterable[int]] = ..., added: _Optional[_Iterable[int]] = ..., leaving: _Optional[_Iterable[int]] = ..., stage: _Optional[_Union[ShardChangeStage, str]] = ..., reason: _Optional[str] = ..., settled: _Optional[bool] = ...) -> None: ...

class ShardPreparation(_message.Message):
    __slots__ = ("shard", "config", "decided", "prepared", "refused", "latest_ns", "boundary_ns", "until_ns", "ids", "leader")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LATEST_NS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_NS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_NS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    config: int
    decided: int
    prepared: int
    refused: int
    latest_ns: int
    boundary_ns: int
    until_ns: int
    ids: int
    leader: str
    def __init__(self, shard: _Optional[int] = ..., config: _Optional[int] = ..., decided: _Optional[int] = ..., prepared: _Optional[int] = ..., refused: _Optional[int] = ..., latest_ns: _Optional[int] = ..., boundary_ns: _Optional[int] = ..., until_ns: _Optional[int] = ..., ids: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class ReshardReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "replica", "config", "ranges", "change", "shards", "removed", "now_ns", "why_not_sooner", "problems")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    WHY_NOT_SOONER_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    replica: str
    config: int
    ranges: _containers.RepeatedCompositeFieldContainer[ShardRange]
    change: ShardChange
    shards: _containers.RepeatedCompositeFieldContainer[ShardPreparation]
    removed: _containers.RepeatedScalarFieldContainer[int]
    now_ns: int
    why_not_sooner: _containers.RepeatedScalarFieldContainer[str]
    problems: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., replica: _Optional[str] = ..., config: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[ShardRange, _Mapping]]] = ..., change: _Optional[_Union[ShardChange, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[ShardPreparation, _Mapping]]] = ..., removed: _Optional[_Iterable[int]] = ..., now_ns: _Optional[int] = ..., why_not_sooner: _Optional[_Iterable[str]] = ..., problems: _Optional[_Iterable[str]] = ...) -> None: ...

class InspectRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupInspection(_message.Message):
    __slots__ = ("group", "leader", "is_leader", "term", "applied", "committed", "healthy", "writable", "ids", "bytes", "boundary_ns", "closed", "batches", "batch_mean", "commit_ms_p50", "commit_ms_p99", "alarms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    IS_LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_NS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    BATCH_MEAN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_P50_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_P99_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    group: int
    leader: str
    is_leader: bool
    term: int
    applied: int
    committed: int
    healthy: bool
    writable: bool
    ids: int
    bytes: int
    boundary_ns: int
    closed: bool
    batches: int
    batch_mean: float
    commit_ms_p50: float
    commit_ms_p99: float
    alarms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[int] = ..., leader: _Optional[str] = ..., is_leader: _Optional[bool] = ..., term: _Optional[int] = ..., applied: _Optional[int] = ..., committed: _Optional[int] = ..., healthy: _Optional[bool] = ..., writable: _Optional[bool] = ..., ids: _Optional[int] = ..., bytes: _Optional[int] = ..., boundary_ns: _Optional[int] = ..., closed: _Optional[bool] = ..., batches: _Optional[int] = ..., batch_mean: _Optional[float] = ..., commit_ms_p50: _Optional[float] = ..., commit_ms_p99: _Optional[float] = ..., alarms: _Optional[_Iterable[str]] = ...) -> None: ...

class InspectReply(_message.Message):
    __slots__ = ("replica", "epoch", "members", "groups", "clock_ns", "disk_free", "disk_size", "version", "alarms")
    class MembersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_NS_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_FIELD_NUMBER: _ClassVar[int]
    DISK_SIZE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    replica: str
    epoch: int
    members: _containers.ScalarMap[str, str]
    groups: _containers.RepeatedCompositeFieldContainer[GroupInspection]
    clock_ns: int
    disk_free: int
    disk_size: int
    version: str
    alarms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, replica: _Optional[str] = ..., epoch: _Optional[int] = ..., members: _Optional[_Mapping[str, str]] = ..., groups: _Optional[_Iterable[_Union[GroupInspection, _Mapping]]] = ..., clock_ns: _Optional[int] = ..., disk_free: _Optional[int] = ..., disk_size: _Optional[int] = ..., version: _Optional[str] = ..., alarms: _Optional[_Iterable[str]] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("epoch", "members")
    class MembersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    members: _containers.ScalarMap[str, str]
    def __init__(self, epoch: _Optional[int] = ..., members: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BarrierRequest(_message.Message):
    __slots__ = ("group", "mark")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    group: int
    mark: bytes
    def __init__(self, group: _Optional[int] = ..., mark: _Optional[bytes] = ...) -> None: ...

class BarrierReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "index", "term")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    index: int
    term: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., index: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class ExportRequest(_message.Message):
    __slots__ = ("group", "mark")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    group: int
    mark: bytes
    def __init__(self, group: _Optional[int] = ..., mark: _Optional[bytes] = ...) -> None: ...

class ExportPart(_message.Message):
    __slots__ = ("head", "chunk", "end")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    head: ExportHead
    chunk: ExportChunk
    end: ExportEnd
    def __init__(self, head: _Optional[_Union[ExportHead, _Mapping]] = ..., chunk: _Optional[_Union[ExportChunk, _Mapping]] = ..., end: _Optional[_Union[ExportEnd, _Mapping]] = ...) -> None: ...

class ExportHead(_message.Message):
    __slots__ = ("magic", "version", "replica", "group", "status", "reason")
    MAGIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    magic: str
    version: int
    replica: str
    group: int
    status: Status
    reason: str
    def __init__(self, magic: _Optional[str] = ..., version: _Optional[int] = ..., replica: _Optional[str] = ..., group: _Optional[int] = ..., status: _Optional[_Union[Status, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ExportChunk(_message.Message):
    __slots__ = ("data", "crc32")
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    crc32: int
    def __init__(self, data: _Optional[bytes] = ..., crc32: _Optional[int] = ...) -> None: ...

class ExportEnd(_message.Message):
    __slots__ = ("chunks", "bytes", "checksum", "applied", "term")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    bytes: int
    checksum: bytes
    applied: int
    term: int
    def __init__(self, chunks: _Optional[int] = ..., bytes: _Optional[int] = ..., checksum: _Optional[bytes] = ..., applied: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class TransferLeaderRequest(_message.Message):
    __slots__ = ("group", "to")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    group: int
    to: str
    def __init__(self, group: _Optional[int] = ..., to: _Optional[str] = ...) -> None: ...

class OperatorReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class OpenShardRequest(_message.Message):
    __slots__ = ("shard", "raise_boundary", "boundary_ns")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    RAISE_BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_NS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    raise_boundary: bool
    boundary_ns: int
    def __init__(self, shard: _Optional[int] = ..., raise_boundary: _Optional[bool] = ..., boundary_ns: _Optional[int] = ...) -> None: ...

class RegisterAgainRequest(_message.Message):
    __slots__ = ("shard", "digests", "times", "tokens", "kinds", "tags", "generations", "slot", "datacentre", "cleared")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    shard: int
    digests: bytes
    times: bytes
    tokens: bytes
    kinds: bytes
    tags: bytes
    generations: bytes
    slot: str
    datacentre: str
    cleared: bool
    def __init__(self, shard: _Optional[int] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., kinds: _Optional[bytes] = ..., tags: _Optional[bytes] = ..., generations: _Optional[bytes] = ..., slot: _Optional[str] = ..., datacentre: _Optional[str] = ..., cleared: _Optional[bool] = ...) -> None: ...

class RegisterAgainReply(_message.Message):
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

class WitnessLog(_message.Message):
    __slots__ = ("number", "length", "hash")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    number: int
    length: int
    hash: bytes
    def __init__(self, number: _Optional[int] = ..., length: _Optional[int] = ..., hash: _Optional[bytes] = ...) -> None: ...

class ReadWitnessRequest(_message.Message):
    __slots__ = ("slot",)
    SLOT_FIELD_NUMBER: _ClassVar[int]
    slot: str
    def __init__(self, slot: _Optional[str] = ...) -> None: ...

class ExtendWitnessRequest(_message.Message):
    __slots__ = ("slot", "incarnation", "end", "to")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    slot: str
    incarnation: int
    end: _containers.RepeatedCompositeFieldContainer[WitnessLog]
    to: _containers.RepeatedCompositeFieldContainer[WitnessLog]
    def __init__(self, slot: _Optional[str] = ..., incarnation: _Optional[int] = ..., end: _Optional[_Iterable[_Union[WitnessLog, _Mapping]]] = ..., to: _Optional[_Iterable[_Union[WitnessLog, _Mapping]]] = ...) -> None: ...

class JudgeByRequest(_message.Message):
    __slots__ = ("join", "datacentre", "process", "rule")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    join: str
    datacentre: str
    process: str
    rule: bytes
    def __init__(self, join: _Optional[str] = ..., datacentre: _Optional[str] = ..., process: _Optional[str] = ..., rule: _Optional[bytes] = ...) -> None: ...

class JudgeByReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "newest", "brought", "processes")
    class ProcessesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    BROUGHT_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    newest: bytes
    brought: str
    processes: _containers.ScalarMap[str, bytes]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., newest: _Optional[bytes] = ..., brought: _Optional[str] = ..., processes: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ("side", "log", "record", "key", "id", "time_ns", "key_shown", "id_shown")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    KEY_SHOWN_FIELD_NUMBER: _ClassVar[int]
    ID_SHOWN_FIELD_NUMBER: _ClassVar[int]
    side: str
    log: str
    record: bytes
    key: bytes
    id: bytes
    time_ns: int
    key_shown: bytes
    id_shown: bytes
    def __init__(self, side: _Optional[str] = ..., log: _Optional[str] = ..., record: _Optional[bytes] = ..., key: _Optional[bytes] = ..., id: _Optional[bytes] = ..., time_ns: _Optional[int] = ..., key_shown: _Optional[bytes] = ..., id_shown: _Optional[bytes] = ...) -> None: ...

class KeepSamplesRequest(_message.Message):
    __slots__ = ("join", "datacentre", "samples")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    join: str
    datacentre: str
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    def __init__(self, join: _Optional[str] = ..., datacentre: _Optional[str] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ...) -> None: ...

class KeepSamplesReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "samples")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ...) -> None: ...

class WitnessReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "newest", "witness", "retired", "refused")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    newest: int
    witness: _containers.RepeatedCompositeFieldContainer[WitnessLog]
    retired: bool
    refused: str
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., newest: _Optional[int] = ..., witness: _Optional[_Iterable[_Union[WitnessLog, _Mapping]]] = ..., retired: _Optional[bool] = ..., refused: _Optional[str] = ...) -> None: ...

class RetireSlotRequest(_message.Message):
    __slots__ = ("slot",)
    SLOT_FIELD_NUMBER: _ClassVar[int]
    slot: str
    def __init__(self, slot: _Optional[str] = ...) -> None: ...

class RetireSlotReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "shards")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...

class ClearBelowRequest(_message.Message):
    __slots__ = ("shard", "incarnation", "batch", "count", "xor")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    XOR_FIELD_NUMBER: _ClassVar[int]
    shard: int
    incarnation: int
    batch: int
    count: int
    xor: bytes
    def __init__(self, shard: _Optional[int] = ..., incarnation: _Optional[int] = ..., batch: _Optional[int] = ..., count: _Optional[int] = ..., xor: _Optional[bytes] = ...) -> None: ...

class ClearBelowReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "applied", "count", "xor")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    XOR_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    applied: bool
    count: int
    xor: bytes
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., applied: _Optional[bool] = ..., count: _Optional[int] = ..., xor: _Optional[bytes] = ...) -> None: ...

class ScanOwnedRequest(_message.Message):
    __slots__ = ("shard", "slot", "upto", "cursor", "limit")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    shard: int
    slot: str
    upto: int
    cursor: bytes
    limit: int
    def __init__(self, shard: _Optional[int] = ..., slot: _Optional[str] = ..., upto: _Optional[int] = ..., cursor: _Optional[bytes] = ..., limit: _Optional[int] = ...) -> None: ...

class ScanReopenedRequest(_message.Message):
    __slots__ = ("shard", "cursor", "limit")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    shard: int
    cursor: bytes
    limit: int
    def __init__(self, shard: _Optional[int] = ..., cursor: _Optional[bytes] = ..., limit: _Optional[int] = ...) -> None: ...

class EntriesReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "digests", "times", "tokens", "kinds", "tags", "generations", "cursor", "fenced")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    digests: bytes
    times: bytes
    tokens: bytes
    kinds: bytes
    tags: bytes
    generations: bytes
    cursor: bytes
    fenced: bool
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., kinds: _Optional[bytes] = ..., tags: _Optional[bytes] = ..., generations: _Optional[bytes] = ..., cursor: _Optional[bytes] = ..., fenced: _Optional[bool] = ...) -> None: ...

class ReopenRequest(_message.Message):
    __slots__ = ("shard", "digests", "times", "tokens", "generations", "operator", "retired")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    shard: int
    digests: bytes
    times: bytes
    tokens: bytes
    generations: bytes
    operator: bool
    retired: bool
    def __init__(self, shard: _Optional[int] = ..., digests: _Optional[bytes] = ..., times: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., generations: _Optional[bytes] = ..., operator: _Optional[bool] = ..., retired: _Optional[bool] = ...) -> None: ...

class ReopenReply(_message.Message):
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

class ListSlotsRequest(_message.Message):
    __slots__ = ("after", "limit")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: str
    limit: int
    def __init__(self, after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class KnownSlot(_message.Message):
    __slots__ = ("slot", "datacentre", "address", "newest", "openings", "retired", "witness")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    OPENINGS_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    WITNESS_FIELD_NUMBER: _ClassVar[int]
    slot: str
    datacentre: str
    address: str
    newest: int
    openings: int
    retired: bool
    witness: _containers.RepeatedCompositeFieldContainer[WitnessLog]
    def __init__(self, slot: _Optional[str] = ..., datacentre: _Optional[str] = ..., address: _Optional[str] = ..., newest: _Optional[int] = ..., openings: _Optional[int] = ..., retired: _Optional[bool] = ..., witness: _Optional[_Iterable[_Union[WitnessLog, _Mapping]]] = ...) -> None: ...

class ListSlotsReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "slots", "more")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    slots: _containers.RepeatedCompositeFieldContainer[KnownSlot]
    more: bool
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., slots: _Optional[_Iterable[_Union[KnownSlot, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("shard", "digest", "time_ns")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    digest: bytes
    time_ns: int
    def __init__(self, shard: _Optional[int] = ..., digest: _Optional[bytes] = ..., time_ns: _Optional[int] = ...) -> None: ...

class TraceReply(_message.Message):
    __slots__ = ("status", "leader_hint", "reason", "answer", "cleared", "token", "kind", "generation", "slot", "datacentre", "applied", "replica", "bounded", "boundary_ns")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    LEADER_HINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DATACENTRE_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    BOUNDED_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_NS_FIELD_NUMBER: _ClassVar[int]
    status: Status
    leader_hint: str
    reason: str
    answer: int
    cleared: bool
    token: int
    kind: int
    generation: int
    slot: str
    datacentre: str
    applied: int
    replica: str
    bounded: bool
    boundary_ns: int
    def __init__(self, status: _Optional[_Union[Status, str]] = ..., leader_hint: _Optional[str] = ..., reason: _Optional[str] = ..., answer: _Optional[int] = ..., cleared: _Optional[bool] = ..., token: _Optional[int] = ..., kind: _Optional[int] = ..., generation: _Optional[int] = ..., slot: _Optional[str] = ..., datacentre: _Optional[str] = ..., applied: _Optional[int] = ..., replica: _Optional[str] = ..., bounded: _Optional[bool] = ..., boundary_ns: _Optional[int] = ...) -> None: ...
