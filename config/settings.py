"""The deployment file: one TOML file says what a deployment is. Frozen; an unknown key is an error.

``docs/configuration.md`` lists every key with its default; a test keeps the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

Side = Literal["primary", "foreign"]
SIDES: tuple[Side, ...] = ("primary", "foreign")
NAME_MAX = 40
NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"
"""Names of joins, datacentres, replicas and slots: they become part of ids, paths and metrics."""


class Duration(float):
    """Seconds; written ``"5s"`` or as a number."""


class Size(int):
    """Bytes; written ``"128MiB"`` or as a number."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Within(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``within = { before = "1h", after = "5m" }``: by how much a primary event's time may differ from the foreign
    event's."""

    before: Duration = Duration(0.0)
    after: Duration = Duration(0.0)

    @property
    def before_ns(self) -> int:
        return round(self.before * 1e9)

    @property
    def after_ns(self) -> int:
        return round(self.after * 1e9)


class Join(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[join.NAME]``: a pair of logs and how they are read.

    Either ``adapter`` names code, or ``primary`` and ``foreign`` describe ordinary logs
    (see photon.adapters.side for their keys).
    """

    adapter: str | None = None
    """``path.py:Class``, relative to this file."""
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    """Handed to the adapter's constructor."""
    primary: dict[str, Any] | None = None
    foreign: dict[str, Any] | None = None
    shape: dict[str, Any] | None = None
    """Filters, derived and redacted fields, what the joined record holds (see photon.adapters.shape)."""
    within: Within | None = None
    """Bounds on the event times of a pair; beyond them the foreign event is unmatched. Unset: none."""
    primary_files: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    """Glob patterns below the primary log directory."""
    foreign_files: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    unmatched_after: Duration | None = None
    """How long an event waits for its primary, from its first read; unset: for ever, except with --once."""
    unmatched: Literal["apart", "inline"] = "apart"
    """Where events without a primary are written: in a log of their own, or among the joined records, as a left join
    has them, with ``primary`` null."""
    written_within: Duration | None = None
    """How long after its event time a line is in its foreign log at the latest: what the exact watermark relies on.
    Unset: nothing is promised, and there is none."""
    match: Literal["first", "all", "latest"] = "first"
    """Whether an event is joined with the first primary event of its key, all of them, or the latest not after it."""
    file_map: Literal["dense", "sparse"] = "dense"
    """How the event store indexes primary logs: sparse for ids ServerIP:ProcessID:TimestampMicros in order."""
    file_map_window: Duration = Duration(10.0)
    """W of a sparse file map: ids of a process that lie further apart get an entry each."""
    file_map_bytes: Size = Size(1 << 20)
    """M of a sparse file map: a process gets an entry each time its log has grown by so much; a look-up reads no more
    than this."""
    missing_logs: Literal["wait", "forget"] = "wait"
    """What becomes of look-ups that lead to a primary log whose file is gone: wait until it is back or given up by
    hand, or give it up at once, so that its keys count as absent."""
    primary_max_delay: Duration = Duration(0.0)
    """By how much a primary line may come later than it was due, beyond what has been read."""
    last_line_after: Duration = Duration(60.0)
    """With --once a last line without line end counts once its file was not written to for so long, or is compressed
    or rolled; before, it waits for the next run. 0: at once."""
    identical_copies: bool = False
    """Whether the copies of the foreign logs in all datacentres are the same files byte by byte. Then a second line
    with one id differs from the other datacentre's work in every ledger, and ids may be places in a log."""

    def upstream(self, side: Side) -> str | None:
        """The join whose output is this side's events (docs/chains.md); None: logs that others write."""
        table = self.primary if side == "primary" else self.foreign
        return None if table is None else table.get("join")


class Limits(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[limits]``: bounds on everything that can grow."""

    batch_events: int = 1000
    batch_wait: Duration = Duration(0.005)
    batches_in_flight: int = 8
    """Per joiner."""
    record: Size = Size(1 << 20)
    """A longer record is rejected."""
    adapter_timeout: Duration = Duration(5.0)
    """An adapter that has not come back for so long is broken off, and the event rejected in the end; 0: never."""
    adapter_memory: Size = Size(1 << 30)
    """By how much its process may grow during one call of an adapter; beyond, the event is rejected; 0: any."""
    cache: Size = Size(256 << 20)
    read_ahead: Size = Size(64 << 20)
    redo_log: Size = Size(4 << 30)
    retry_store: Size = Size(10 << 30)
    registrations_in_flight: int = 65_536
    sought_keys: int = 1_000_000
    """Of primary events that were asked for in vain, remembered by the event store: when one comes, the events that
    wait for it are tried at once. The oldest are forgotten; 16 to 32 bytes each."""


class Output(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[output]``: what the output files look like."""

    roll_size: Size = Size(128 << 20)
    roll_age: Duration = Duration(300.0)
    compress: Literal["none", "gzip"] = "none"
    """The form of a closed file once all its ids are cleared: plain, or ``.jsonl.gz``."""
    joined_at: bool = True
    copies: Literal[1, 2] = 1
    """2: each slot's output is also kept in another datacentre, which has ``copies`` in its table."""
    copies_wait: Duration = Duration(60.0)
    """While no keeper answers, readers wait so long for the copy; then what is durable in one place is shown."""
    copies_required: bool = False
    """Readers wait for ever."""


class ClockSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[clock]``."""

    uncertainty: Duration = Duration(5.0)
    """S: the bound on clock uncertainty between any two machines."""
    require_sync: bool = False
    """Whether a registry replica refuses a machine whose kernel does not call its clock synchronised."""


class DispatcherSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[dispatcher]``: how dispatchers of several datacentres share the work."""

    head_start: Duration | None = None
    """How long an event is left to its home datacentre. Unset: two commit times of the registry, as measured."""
    catch_up_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.05
    """Of the work, for old events and retries while fresh events wait; the latter go first. 1: all are alike."""
    lease: Duration = Duration(10.0)
    """A worker that stands still for so long loses its logs to the others."""
    split: Size = Size(256 << 20)
    """A plain log with so much that is unread is read in parts by several workers."""


class JoinerSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[joiner]``."""

    adopt_after: Duration = Duration(60.0)
    """A slot of its datacentre on its machine whose lock was free for so long is redone by a joiner; 0: never."""


class VerifierSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[verifier]``: the continuous verifier of each pipeline."""

    check_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25
    """Of one core, for checking records against their sources. 0: they are cleared and not checked."""
    owned_alarm: Duration = Duration(300.0)
    """Ids that are registered and not written for longer are an alarm."""
    log_grace: Duration = Duration(30.0)
    """A record that no log has is looked for again for so long before it is an alarm; meanwhile what comes behind it
    in its output file waits to be checked."""
    window: Annotated[int, msgspec.Meta(ge=1)] = 262_144
    """Event ids that are remembered, to notice one that stands twice; some 30 bytes each."""


class TlsSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tls]``: every connection between processes is mutual TLS. Without it all are plain text."""

    directory: str
    """``ca.crt``, and ``IDENTITY.crt`` and ``IDENTITY.key`` of each process that runs on this machine."""


class TelemetrySettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[telemetry]``: what processes send by OTLP (docs/opentelemetry.md)."""

    endpoint: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/]+")]
    """http://HOST:PORT of an OpenTelemetry collector; OTLP over HTTP."""
    traces: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Of batches, the share whose way is traced. 0: none."""
    interval: Duration = Duration(15.0)
    """Between two readings of all metrics. 0: none is sent."""
    logs: bool = True
    """Whether log lines are sent."""


class Wan(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[wan]``: ``photon up`` puts a proxy between the regions of a deployment on one machine."""

    control: str
    """host:port of the proxy's control: delay, drop, reset or refuse."""
    round_trip: Duration = Duration(0.0)
    """Between any two regions, at the start."""


class Replica(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[registry.replicas.NAME]``: one registry process."""

    address: str
    """host:port, for clients and for the other replicas."""
    directory: str
    datacentre: str = ""
    """The datacentre that it is lost with; it may have no pipeline."""
    region: str = ""
    """Unset: that of its datacentre."""
    together: bool = False
    """``photon up`` runs it in the process of its datacentre's pipeline, which is together."""


class RegistrySettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[registry]``."""

    shards: int = 1
    tolerate: int | None = None
    """Replicas that may be lost; f needs 2 f + 1 replicas. Unset: what the replicas listed allow."""
    replicas: dict[str, Replica] = msgspec.field(default_factory=dict)
    retention: Duration | None = None
    """How long ids are kept; unset: for ever."""
    memory_limit: Size | None = None
    """What the ids of one replica may take; at it no further ones are taken. Not written: as much as there is."""
    follow_callers: bool = True
    """Whether a shard's lead moves to a replica in the region of the datacentre that registers most of its ids."""
    epoch: int = 1
    """Of the membership in which a new registry begins. Later it is the replicas' own: ``photon registry replace``
    counts it up, and one that is higher here is taken up at the next start."""


class JoinerSlot(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.joiners.SLOT]``: one joiner process and its slot."""

    address: str


class CacheNode(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.caches.NODE]``: one cache process. The event store reads these tables again when the file
    changes; a node that is added or removed moves its own share of the keys."""

    address: str
    """host:port."""
    size: Size | None = None
    """What it keeps at most; unset: limits.cache."""


class DispatcherWorker(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.dispatchers.WORKER]``: one of several dispatchers that share the pipeline's state."""

    address: str | None = None
    """host:port of its progress and health; unset: it has none."""


class HBaseSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.hbase]``: the event store's file map is a table of this HBase."""

    thrift: str
    """host:port of its Thrift server (version 1)."""
    admin: str | None = None
    """host:port of its Thrift 2 server, with which ``photon eventstore init`` makes the table."""
    table: str | None = None
    """Unset: photon_DATACENTRE. No two event stores share one."""
    ttl: Duration | None = None
    """How long rows live. Unset: a quarter longer than registry.retention; for ever where that is not set."""


class TablesSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tables]``: tables kept up to date by transactions and observers (docs/tables.md)."""

    file: str = "tables.db"
    """SQLite's file, for the programs of one machine, where ``thrift`` is not set."""
    thrift: list[str] = msgspec.field(default_factory=list)
    """host:port of each Thrift 2 server of the HBase that holds them; then the registry's replicas hand out the
    timestamps."""
    table: str = "photon_tables"
    """HBase's table, which holds all of them."""
    durable: bool = False
    """The operator's word that this HBase keeps what it acknowledged through a crash: that it stands on HDFS."""
    keep: Duration = Duration(3600.0)
    """How long old versions are kept: transactions and snapshots that are older are refused."""


class ObserveSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[observe.NAME]``: the observers of a program, kept running (docs/tables.md)."""

    file: str
    """The program: a Python file."""
    addresses: list[str]
    """host:port of the health and metrics of each of its processes: there are as many."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    """Observers at a time, in each process."""


class ComputeSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[compute.NAME]``: a process with computations over what is published (docs/computations.md)."""

    file: str
    """Python file with their topology."""
    state: str
    """Directory of all that is kept of them."""
    processes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Of a new state: into so many intervals are its keys divided, each with a process."""
    address: str | None = None
    """host:port of its metrics and health; unset: it has none, and is not seen by others."""


class SinkSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[sink.NAME]``: a process that writes what a datacentre publishes to another place (docs/objects.md)."""

    into: str
    """s3:// or gs:// URL, kafka://HOST:PORT/TOPIC, postgresql:// address, or a directory for Parquet files."""
    datacentre: str | None = None
    """Whose output; unset: of the only one."""
    kinds: list[str] = msgspec.field(default_factory=lambda: ["joined"])
    """Which records."""
    table: str | None = None
    """Of PostgreSQL; unset: NAME."""
    client: str | None = None
    """File with properties of Kafka's clients."""
    address: str | None = None
    """host:port of its metrics and health; unset: it has none, and is not seen by others."""


class Pipeline(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME]``: one full pipeline of one join."""

    join: str
    primary: str = ""
    """Directory of the primary logs. Unset, where they are another join's output: ``relayed_directory``."""
    foreign: str = ""
    """The same of the foreign logs."""
    primary_topic: str | None = None
    """kafka://HOST:PORT/TOPIC that the relay makes the primary logs of; ``primary = "kafka://…"`` says it as well."""
    foreign_topic: str | None = None
    """The same of the foreign logs."""
    kafka_client: str | None = None
    """File with properties of Kafka's clients, as librdkafka names them; unset: none."""
    output: str
    state: str
    """Directory of everything that must survive a restart: slots, dispatcher state, file map."""
    eventstore: str
    """host:port."""
    joiners: dict[str, JoinerSlot] = msgspec.field(default_factory=dict)
    """At least one, unless they are discovered."""
    discover: bool = False
    """Dispatchers find joiners by the registry's list of slots, those of ``serve joiner auto`` too."""
    caches: dict[str, CacheNode] = msgspec.field(default_factory=dict)
    """Cache nodes. None: the event store keeps recent records in its own process."""
    hbase: HBaseSettings | None = None
    """Unset: the file map lies in ``state``."""
    dispatcher: str | None = None
    """host:port of the dispatcher's progress and health; unset: it has none."""
    together: bool = False
    """``photon up`` runs its event store, joiners, verifier and dispatcher in one process."""
    dispatchers: dict[str, DispatcherWorker] = msgspec.field(default_factory=dict)
    """Several workers in place of one dispatcher; all on one machine."""
    verifier: str | None = None
    """host:port of the verifier's health; unset: it has none."""
    relay: str | None = None
    """host:port of the health of its relay, which it has where its join has another join's output on a side; unset:
    it has none."""
    copies: str | None = None
    """host:port of its keeper of copies of other datacentres' output; unset: it keeps none."""
    status: str | None = None
    """host:port of its status page (plain HTTP); unset: it has none."""
    watch: Literal["auto", "native", "poll"] = "auto"
    """How changes in its log directories are noticed: notified of where the file system can, or by polling."""
    region: str | None = None
    """Where it is; unset: a region of its own, named like it."""

    def logs(self, side: Side) -> str:
        """The directory of a side's logs."""
        return self.primary if side == "primary" else self.foreign

    def topic(self, side: Side) -> str | None:
        """The topic that a side's logs are made of."""
        return self.primary_topic if side == "primary" else self.foreign_topic

    def relayed_directory(self, side: Side) -> str:
        """Where the relay puts another join's output, or a topic, if nothing else is said."""
        return f"{self.state}/upstream/{side}"

    def dispatcher_addresses(self) -> list[str]:
        addresses = [self.dispatcher, *(worker.address for worker in self.dispatchers.values())]
        return [address for address in addresses if address is not None]


class Settings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    join: dict[str, Join] = msgspec.field(default_factory=dict)
    limits: Limits = msgspec.field(default_factory=Limits)
    output: Output = msgspec.field(default_factory=Output)
    clock: ClockSettings = msgspec.field(default_factory=ClockSettings)
    registry: RegistrySettings = msgspec.field(default_factory=RegistrySettings)
    dispatcher: DispatcherSettings = msgspec.field(default_factory=DispatcherSettings)
    verifier: VerifierSettings = msgspec.field(default_factory=VerifierSettings)
    joiner: JoinerSettings = msgspec.field(default_factory=JoinerSettings)
    tls: TlsSettings | None = None
    telemetry: TelemetrySettings | None = None
    wan: Wan | None = None
    tables: TablesSettings | None = None
    observe: dict[str, ObserveSettings] = msgspec.field(default_factory=dict)
    datacentre: dict[str, Pipeline] = msgspec.field(default_factory=dict)
    compute: dict[str, ComputeSettings] = msgspec.field(default_factory=dict)
    sink: dict[str, SinkSettings] = msgspec.field(default_factory=dict)
    key_file: str | None = None
    """File of 16 to 64 bytes that keys the digests; the same in every datacentre of a deployment."""

    def relayed(self, datacentre: str) -> dict[Side, str]:
        """Sides whose logs the relay of a datacentre makes, each with the topic, or the join whose output they are. A
        chained side with a directory of its own is filled by others."""
        pipeline = self.datacentre[datacentre]
        join = self.join[pipeline.join]
        return {
            side: upstream
            for side in SIDES
            if (upstream := pipeline.topic(side) or join.upstream(side)) is not None
            and (pipeline.topic(side) or pipeline.logs(side) == pipeline.relayed_directory(side))
        }

    def needs(self, join: str) -> set[str]:
        """The joins whose output it reads, however far above it, and itself."""
        above = (up for side in SIDES if (up := self.join[join].upstream(side)) is not None)
        return {join}.union(*(self.needs(up) for up in above))

    def chain(self, join: str | None = None) -> list[str]:
        """The joins of all datacentres, or those that one needs: each before those whose output it reads."""
        needed = {name: len(self.needs(name)) for name in (self.needs(join) if join else self.join)}
        found = sorted(needed, key=lambda name: (-needed[name], name))
        return [name for name in found if self.joining(name)]

    def joining(self, join: str) -> list[str]:
        return sorted(name for name, pipeline in self.datacentre.items() if pipeline.join == join)

    def beside(self, datacentre: str) -> list[str]:
        return [name for name in self.joining(self.datacentre[datacentre].join) if name != datacentre]

    def region(self, datacentre: str) -> str:
        """Where a datacentre is: its pipeline's region, else a region of its own."""
        pipeline = self.datacentre.get(datacentre)
        return (pipeline is not None and pipeline.region) or datacentre

    def region_of_replica(self, name: str) -> str:
        """Where a registry replica is; empty when nothing says so."""
        replica = self.registry.replicas[name]
        return replica.region or self.region(replica.datacentre)

    def replicas_near(self) -> dict[str, tuple[str, ...]]:
        """Datacentre -> the registry replicas of its region."""
        regions = {name: self.region_of_replica(name) for name in self.registry.replicas}
        return {
            datacentre: tuple(name for name, region in regions.items() if region == self.region(datacentre))
            for datacentre in self.datacentre
        }


def tables() -> Mapping[str, type[_Table]]:
    """Each table of the file by its place, for the documentation and its test."""
    return {
        "": Settings,
        "join.NAME": Join,
        "limits": Limits,
        "output": Output,
        "clock": ClockSettings,
        "dispatcher": DispatcherSettings,
        "verifier": VerifierSettings,
        "joiner": JoinerSettings,
        "tls": TlsSettings,
        "telemetry": TelemetrySettings,
        "wan": Wan,
        "tables": TablesSettings,
        "observe.NAME": ObserveSettings,
        "registry": RegistrySettings,
        "registry.replicas.NAME": Replica,
        "compute.NAME": ComputeSettings,
        "sink.NAME": SinkSettings,
        "datacentre.NAME": Pipeline,
        "datacentre.NAME.hbase": HBaseSettings,
        "datacentre.NAME.joiners.SLOT": JoinerSlot,
        "datacentre.NAME.dispatchers.WORKER": DispatcherWorker,
        "datacentre.NAME.caches.NODE": CacheNode,
    }
