"""The deployment file: one TOML file describes a deployment. Frozen; an unknown key is an error.

``docs/configuration.md`` lists every key with its default; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

Side = Literal["primary", "foreign"]
SIDES: tuple[Side, ...] = ("primary", "foreign")
NAME_MAX = 40
# Names of joins, datacentres, replicas and slots: they become part of ids, paths and metrics.
NAME = r"^[a-z0-9][a-z0-9_-]{0,39}$"


class Duration(float):
    """Seconds; written ``"5s"`` or as a number."""


class Size(int):
    """Bytes; written ``"128MiB"`` or as a number."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Within(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``within = { before = "1h", after = "5m" }``: bounds on a primary time relative to the foreign event's."""

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

    Either ``adapter`` names code, or ``primary`` and ``foreign`` describe ordinary logs (see photon.adapters.side for
    their keys).
    """

    adapter: str | None = None  # ``path.py:Class``, relative to this file
    options: dict[str, Any] = msgspec.field(default_factory=dict)  # passed to the adapter's constructor
    primary: dict[str, Any] | None = None
    foreign: dict[str, Any] | None = None
    # Filters, derived and redacted fields, contents of the joined record (see photon.adapters.shape).
    shape: dict[str, Any] | None = None
    # Bounds on the event times of a pair; outside them the foreign event is unmatched. Unset: none.
    within: Within | None = None
    # Glob patterns below the primary log directory.
    primary_files: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    foreign_files: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    # How long an event waits for its primary, from its first read; unset: permanently, except with --once.
    unmatched_after: Duration | None = None
    # Where events without a primary are written: in a log of their own, or among the joined records, like a left
    # join, with ``primary`` null.
    unmatched: Literal["apart", "inline"] = "apart"
    # The longest delay of a line in its foreign log after its event time: the exact watermark relies on it. Unset: no
    # promise, and no watermark.
    written_within: Duration | None = None
    # Joins an event with the first primary event of its key, with all, or with the latest not after it.
    match: Literal["first", "all", "latest"] = "first"
    # How the event store indexes primary logs: sparse for ids ServerIP:ProcessID:TimestampMicros in order.
    file_map: Literal["dense", "sparse"] = "dense"
    # W of a sparse file map: ids of a process that are further apart get an entry each.
    file_map_window: Duration = Duration(10.0)
    # M of a sparse file map: a process gets an entry each time its log has grown by this much; a look-up reads no
    # more than this.
    file_map_bytes: Size = Size(1 << 20)
    # What happens to look-ups that lead to a primary log whose file is gone: wait until it is back or given up by
    # hand, or give it up at once, so that its keys count as absent.
    missing_logs: Literal["wait", "forget"] = "wait"
    # How late a primary line may arrive, compared with the lines already read.
    primary_max_delay: Duration = Duration(0.0)
    # With --once a last line without line end counts after its file was not written to for this time, or if it is
    # compressed or rolled; otherwise it waits for the next run. 0: at once.
    last_line_after: Duration = Duration(60.0)
    # The copies of the foreign logs in all datacentres are byte-identical files. A second line with one id is then
    # told from the other datacentre's work in every ledger, and ids may be places in a log.
    identical_copies: bool = False

    def upstream(self, side: Side) -> str | None:
        """Returns the join whose output is this side's events (docs/chains.md); ``None`` for other logs."""
        table = self.primary if side == "primary" else self.foreign
        return None if table is None else table.get("join")


class Limits(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[limits]``: bounds on everything that can grow."""

    batch_events: int = 1000
    batch_wait: Duration = Duration(0.005)
    batches_in_flight: int = 8  # per joiner
    record: Size = Size(1 << 20)  # a longer record is rejected
    # Time after which a call of an adapter is broken off; the event is rejected in the end; 0: never.
    adapter_timeout: Duration = Duration(5.0)
    # How much the process may grow during one adapter call; beyond, the event is rejected; 0: any.
    adapter_memory: Size = Size(1 << 30)
    cache: Size = Size(256 << 20)
    read_ahead: Size = Size(64 << 20)
    redo_log: Size = Size(4 << 30)
    retry_store: Size = Size(10 << 30)
    registrations_in_flight: int = 65_536
    # Primary keys looked up in vain that the event store remembers: when one arrives, the events that wait for it are
    # tried at once. The oldest are forgotten; 16 to 32 bytes each.
    sought_keys: int = 1_000_000


class Output(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[output]``: the form of the output files."""

    roll_size: Size = Size(128 << 20)
    roll_age: Duration = Duration(300.0)
    # Form of a closed file once all its ids are cleared: plain, or ``.jsonl.gz``.
    compress: Literal["none", "gzip"] = "none"
    joined_at: bool = True
    # 2: each slot's output is also kept in another datacentre, which has ``copies`` in its table.
    copies: Literal[1, 2] = 1
    # Time readers wait for the copy while no keeper answers; then records durable in one place are shown.
    copies_wait: Duration = Duration(60.0)
    copies_required: bool = False  # readers wait for the copy without limit


class ClockSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[clock]``."""

    uncertainty: Duration = Duration(5.0)  # S: the bound on clock uncertainty between any two machines
    # A registry replica refuses a machine whose kernel does not call its clock synchronised.
    require_sync: bool = False


class DispatcherSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[dispatcher]``: how dispatchers of several datacentres share the work."""

    # How long an event is left to its home datacentre. Unset: two commit times of the registry, as measured.
    head_start: Duration | None = None
    # Share of the work for old events and retries while fresh events wait, which have priority. 1: all are equal.
    catch_up_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.05
    lease: Duration = Duration(10.0)  # a worker that stops for this time loses its logs to the others
    split: Size = Size(256 << 20)  # a plain log with at least this much unread is read in parts by several workers


class JoinerSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[joiner]``."""

    # Time after which a joiner redoes an unlocked slot of its datacentre and machine; 0: never.
    adopt_after: Duration = Duration(60.0)


class VerifierSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[verifier]``: the continuous verifier of each pipeline."""

    # Share of one core for checking records against their sources. 0: they are cleared without check.
    check_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25
    owned_alarm: Duration = Duration(300.0)  # ids that are registered but not written for longer raise an alarm
    # Time for which a record that no log has is searched for before it raises an alarm; meanwhile later records in
    # its output file wait to be checked.
    log_grace: Duration = Duration(30.0)
    # Event ids remembered to notice duplicates; some 30 bytes each.
    window: Annotated[int, msgspec.Meta(ge=1)] = 262_144


class TlsSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tls]``: every connection between processes is mutual TLS. Without it all are plain text."""

    directory: str  # ``ca.crt``, and ``IDENTITY.crt`` and ``IDENTITY.key`` of each process that runs on this machine


class TelemetrySettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[telemetry]``: data that processes send by OTLP (docs/opentelemetry.md)."""

    # http://HOST:PORT of an OpenTelemetry collector; OTLP over HTTP.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/]+")]
    traces: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01  # share of batches that are traced. 0: none
    interval: Duration = Duration(15.0)  # time between two readings of all metrics. 0: none is sent
    logs: bool = True  # send log lines


class Wan(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[wan]``: ``photon up`` puts a proxy between the regions of a deployment on one machine."""

    control: str  # host:port of the proxy's control: delay, drop, reset or refuse
    round_trip: Duration = Duration(0.0)  # between any two regions, at the start


class Replica(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[registry.replicas.NAME]``: one registry process."""

    address: str  # host:port, for clients and for the other replicas
    directory: str
    datacentre: str = ""  # the datacentre whose failure takes it down; it may have no pipeline
    region: str = ""  # unset: that of its datacentre
    # ``photon up`` runs it in the process of its datacentre's pipeline, which has ``together`` set.
    together: bool = False


class RegistrySettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[registry]``."""

    shards: int = 1
    # Replicas that may be lost; f needs 2 f + 1 replicas. Unset: as many as the listed replicas allow.
    tolerate: int | None = None
    replicas: dict[str, Replica] = msgspec.field(default_factory=dict)
    retention: Duration | None = None  # how long ids are kept; unset: permanently
    # Memory for the ids of one replica; beyond it new ids are refused. Unset: all of the machine's.
    memory_limit: Size | None = None
    # A shard's lead moves to a replica in the region of the datacentre that registers most of its ids.
    follow_callers: bool = True
    # Epoch of the membership in which a new registry begins. Later the replicas keep their own: ``photon registry
    # replace`` increments it, and a higher one here is adopted at the next start.
    epoch: int = 1


class JoinerSlot(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.joiners.SLOT]``: one joiner process and its slot."""

    address: str


class CacheNode(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.caches.NODE]``: one cache process.

    The event store reads these tables again when the file changes; adding or removing a node moves only its share of
    the keys.
    """

    address: str  # host:port
    size: Size | None = None  # most that it keeps; unset: limits.cache


class DispatcherWorker(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.dispatchers.WORKER]``: one of several dispatchers that share the pipeline's state."""

    address: str | None = None  # host:port of its progress and health; unset: none


class HBaseSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.hbase]``: the event store's file map is a table of this HBase."""

    thrift: str  # host:port of its Thrift server (version 1)
    # host:port of its Thrift 2 server, with which ``photon eventstore init`` makes the table.
    admin: str | None = None
    table: str | None = None  # unset: photon_DATACENTRE. No two event stores may share one
    # Lifetime of rows. Unset: a quarter longer than registry.retention; unlimited without that.
    ttl: Duration | None = None


class TablesSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tables]``: tables kept up to date by transactions and observers (docs/tables.md)."""

    file: str = "tables.db"  # SQLite's file, for the programs of one machine, if ``thrift`` is not set
    # host:port of each Thrift 2 server of the HBase that holds them; then the registry's replicas issue the
    # timestamps.
    thrift: list[str] = msgspec.field(default_factory=list)
    table: str = "photon_tables"  # HBase's table that holds all of them
    # The operator asserts that this HBase keeps acknowledged writes through a crash: it is on HDFS.
    durable: bool = False
    keep: Duration = Duration(3600.0)  # how long old versions are kept: older transactions and snapshots are refused


class ObserveSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[observe.NAME]``: the observers of a program, kept running (docs/tables.md)."""

    file: str  # the program: a Python file
    addresses: list[str]  # host:port of the health and metrics of each process; determines their number
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4  # observers running at a time, in each process


class ComputeSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[compute.NAME]``: a process with computations over published records (docs/computations.md)."""

    file: str  # Python file with their topology
    state: str  # directory of all their state
    # For a new state: number of intervals its keys are divided into, each with a process.
    processes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    address: str | None = None  # host:port of its metrics and health; unset: none, invisible to others


class SinkSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[sink.NAME]``: a process that writes a datacentre's published records to another place (docs/objects.md)."""

    into: str  # s3:// or gs:// URL, kafka://HOST:PORT/TOPIC, postgresql:// address, or a directory for Parquet files
    datacentre: str | None = None  # the datacentre of the output; unset: the only one
    kinds: list[str] = msgspec.field(default_factory=lambda: ["joined"])  # kinds of records
    table: str | None = None  # PostgreSQL's table; unset: NAME
    client: str | None = None  # file with properties of Kafka's clients
    address: str | None = None  # host:port of its metrics and health; unset: none, invisible to others


class Pipeline(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME]``: one full pipeline of one join."""

    join: str
    primary: str = ""  # directory of the primary logs. Unset, for another join's output: ``relayed_directory``
    foreign: str = ""  # directory of the foreign logs, likewise
    # kafka://HOST:PORT/TOPIC that the relay turns into primary logs; ``primary = "kafka://…"`` is equivalent.
    primary_topic: str | None = None
    foreign_topic: str | None = None  # the topic of the foreign logs, likewise
    kafka_client: str | None = None  # file with properties of Kafka's clients, as librdkafka names them; unset: none
    output: str
    state: str  # directory of everything that must survive a restart: slots, dispatcher state, file map
    eventstore: str  # host:port
    joiners: dict[str, JoinerSlot] = msgspec.field(default_factory=dict)  # at least one, unless they are discovered
    # Dispatchers find joiners by the registry's list of slots, including those of ``serve joiner auto``.
    discover: bool = False
    # Cache nodes. Without any, the event store keeps recent records in its own process.
    caches: dict[str, CacheNode] = msgspec.field(default_factory=dict)
    hbase: HBaseSettings | None = None  # unset: the file map is in ``state``
    # host:port of the progress and health of the dispatcher, or of the join on Spark in its place; unset: none
    dispatcher: str | None = None
    # What joins: a dispatcher and joiners, or ``photon spark join``; tables of the others may stay.
    pipeline: Literal["services", "spark"] = "services"
    spark: dict[str, str] = msgspec.field(default_factory=dict)  # Spark's own settings; ``spark.master`` among them
    slot: str | None = None  # that Spark writes; unset: NAME-spark. Another one once that was retired
    together: bool = False  # ``photon up`` runs its event store, joiners, verifier and dispatcher in one process
    # Several workers in place of one dispatcher; all on one machine.
    dispatchers: dict[str, DispatcherWorker] = msgspec.field(default_factory=dict)
    verifier: str | None = None  # host:port of the verifier's health; unset: none
    # host:port of the health of its relay, which exists if its join has another join's output on a side; unset: none.
    relay: str | None = None
    copies: str | None = None  # host:port of its keeper of copies of other datacentres' output; unset: none is kept
    status: str | None = None  # host:port of its status page (plain HTTP); unset: none
    # How changes in its log directories are noticed: notification where the file system supports it, or polling.
    watch: Literal["auto", "native", "poll"] = "auto"
    region: str | None = None  # its location; unset: a region of its own with the same name

    @property
    def on_spark(self) -> bool:
        """True if ``photon spark join`` takes the place of dispatcher and joiners."""
        return self.pipeline == "spark"

    def spark_slot(self, datacentre: str) -> str:
        """Returns the slot that its join on Spark writes."""
        return self.slot or f"{datacentre}-spark"

    def logs(self, side: Side) -> str:
        """Returns the directory of a side's logs."""
        return self.primary if side == "primary" else self.foreign

    def topic(self, side: Side) -> str | None:
        """Returns the topic that a side's logs are made from."""
        return self.primary_topic if side == "primary" else self.foreign_topic

    def relayed_directory(self, side: Side) -> str:
        """Returns the default directory in which the relay puts another join's output, or a topic."""
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
    # File of 16 to 64 bytes that keys the digests; the same in every datacentre of a deployment.
    key_file: str | None = None

    def relayed(self, datacentre: str) -> dict[Side, str]:
        """Returns the sides whose logs a datacentre's relay makes, each with its topic or upstream join.

        A chained side with a directory of its own is filled by others.
        """
        pipeline = self.datacentre[datacentre]
        join = self.join[pipeline.join]
        return {
            side: upstream
            for side in SIDES
            if (upstream := pipeline.topic(side) or join.upstream(side)) is not None
            and (pipeline.topic(side) or pipeline.logs(side) == pipeline.relayed_directory(side))
        }

    def slots(self, datacentre: str) -> list[str]:
        """Returns the slots that write a datacentre's output, besides those of ``serve joiner auto``."""
        pipeline = self.datacentre[datacentre]
        return [pipeline.spark_slot(datacentre)] if pipeline.on_spark else list(pipeline.joiners)

    def needs(self, join: str) -> set[str]:
        """Returns the join and those whose output it reads, directly or indirectly."""
        above = (up for side in SIDES if (up := self.join[join].upstream(side)) is not None)
        return {join}.union(*(self.needs(up) for up in above))

    def chain(self, join: str | None = None) -> list[str]:
        """Returns the joins of all datacentres, or those that one needs: each before those whose output it reads."""
        needed = {name: len(self.needs(name)) for name in (self.needs(join) if join else self.join)}
        found = sorted(needed, key=lambda name: (-needed[name], name))
        return [name for name in found if self.joining(name)]

    def joining(self, join: str) -> list[str]:
        return sorted(name for name, pipeline in self.datacentre.items() if pipeline.join == join)

    def beside(self, datacentre: str) -> list[str]:
        return [name for name in self.joining(self.datacentre[datacentre].join) if name != datacentre]

    def region(self, datacentre: str) -> str:
        """Returns the region of a datacentre: its pipeline's, else one of its own."""
        pipeline = self.datacentre.get(datacentre)
        return (pipeline is not None and pipeline.region) or datacentre

    def region_of_replica(self, name: str) -> str:
        """Returns the region of a registry replica; empty if unknown."""
        replica = self.registry.replicas[name]
        return replica.region or self.region(replica.datacentre)

    def replicas_near(self) -> dict[str, tuple[str, ...]]:
        """Returns datacentre -> the registry replicas of its region."""
        regions = {name: self.region_of_replica(name) for name in self.registry.replicas}
        return {
            datacentre: tuple(name for name, region in regions.items() if region == self.region(datacentre))
            for datacentre in self.datacentre
        }


def tables() -> Mapping[str, type[_Table]]:
    """Returns each table of the file by its place, for the documentation and its test."""
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
