"""The deployment file: one TOML file describes a deployment. Frozen; an unknown key is an error.

The site makes its tables of keys (docs/configuration.md) from the comments here: each key has one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

CONFIGURED = "configured"  # the name of Photon's own adapter
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


# The parts of a datacentre; all but ``cache`` and ``spark`` run in its process unless they are ``apart``.
Part = Literal["eventstore", "cache", "copies", "joiner", "verifier", "dispatcher", "spark", "relay", "status"]
# Parts that call the join's adapter, and their default ports above ``address`` if they are apart. Several joiners or
# dispatchers have consecutive ports.
ADAPTER_PORTS: Mapping[str, int] = {"joiner": 10, "dispatcher": 80, "eventstore": 90, "verifier": 91}


class Within(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``within = { before = "1h", after = "5m" }``: how far a primary event may be from the foreign one."""

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

    # ``path.py:Class``, or the name of an installed adapter (see docs/adapters.md), instead of the tables ``primary``
    # and ``foreign``. The parts of a datacentre that call it are apart (docs/deployment.md#together-or-apart).
    adapter: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)  # Passed to the adapter's constructor
    primary: dict[str, Any] | None = None  # How primary records are read: ``[join.NAME.primary]``
    foreign: dict[str, Any] | None = None  # How foreign records are read: ``[join.NAME.foreign]``
    # What the joined record holds; see docs/adapters.md#the-output-needs-other-fields-or-fewer
    shape: dict[str, Any] | None = None
    # Bounds on the event times of a pair, ``{ before = "1h", after = "5m" }``; see Kinds of join
    # (docs/joins.md#bounds-on-event-times).
    within: Within | None = None
    # Glob patterns below the primary log directory.
    primary_files: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    # Glob patterns below the foreign log directory.
    foreign_files: list[str] = msgspec.field(default_factory=lambda: ["**/*"])
    # How long an event waits for its primary event, from its first read; unset: permanently, or until the primary
    # logs end with ``--once``.
    unmatched_after: Duration | None = None
    # Where events without a primary are written: ``apart``, in ``unmatched``, or ``inline``, in ``joined`` with
    # ``primary`` null (docs/joins.md#left-joins).
    unmatched: Literal["apart", "inline"] = "apart"
    # Longest time from an event to its line in the foreign log; the exact watermark relies on it
    # (docs/watermarks.md); unset: there is none.
    written_within: Duration | None = None
    # Which primary events of its key an event is joined with: the ``first``, ``all``, or the ``latest`` not after it
    # (docs/joins.md#several-primaries-of-one-key).
    match: Literal["first", "all", "latest"] = "first"
    # ``dense``: every primary key is indexed; ``sparse``: for ids ``ServerIP:ProcessID:TimestampMicros`` in order,
    # one entry per ``file_map_window`` or ``file_map_bytes``.
    file_map: Literal["dense", "sparse"] = "dense"
    file_map_window: Duration = Duration(10.0)  # sparse: ids of one process further apart get an entry each
    # sparse: a process gets an entry each time its log has grown by this; a look-up reads at most this many bytes.
    file_map_bytes: Size = Size(1 << 20)
    # ``wait``: an event whose primary is only in a deleted log waits until the file is back, or until ``photon
    # eventstore forget``; ``forget``: such a log is given up at once, and its keys count as absent.
    missing_logs: Literal["wait", "forget"] = "wait"
    # How late a primary line may arrive, compared with the lines already read.
    primary_max_delay: Duration = Duration(0.0)
    # With ``--once``, how long a file must be untouched (unless compressed or rolled) before its last line counts
    # without a line end (docs/dispatcher.md#a-last-line-without-its-end). ``0s``: at once.
    last_line_after: Duration = Duration(60.0)
    # All datacentres have byte-identical foreign logs; then ledgers recognise duplicates across datacentres, and a
    # place in a log may serve as an id.
    identical_copies: bool = False

    @property
    def runs_user_code(self) -> bool:
        """True if its adapter is user code, not Photon's own adapter."""
        return self.adapter not in (None, CONFIGURED)

    def upstream(self, side: Side) -> str | None:
        """Returns the join whose output this side reads (docs/chains.md); ``None`` for other logs."""
        table = self.primary if side == "primary" else self.foreign
        return None if table is None else table.get("join")


class Limits(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[limits]``: bounds on everything that can grow."""

    batch_events: int = 4000  # Maximum number of events in a batch from dispatcher to joiner, reached if behind
    # How long an event may wait for others; each batch costs all processes the same, regardless of its size
    # (docs/benchmarks.md#latency); 0: never.
    latency: Duration = Duration(0.05)
    batches_in_flight: int = 8  # Batches under way to one joiner
    record: Size = Size(1 << 20)  # A longer record is rejected
    # A slower adapter call is ended, and finally its event is rejected; see
    # docs/write-an-adapter.md#what-is-contained; 0: never.
    adapter_timeout: Duration = Duration(5.0)
    # If the process grows by more during an adapter call, the adapter gets a ``MemoryError``, and the event is
    # rejected; 0: no limit.
    adapter_memory: Size = Size(1 << 30)
    cache: Size = Size(256 << 20)  # Bytes of primary events kept in memory
    # Memory for unfinished foreign events: their bytes, plus 600 for each.
    read_ahead: Size = Size(64 << 20)
    redo_log: Size = Size(4 << 30)  # Maximum size of a slot's redo log; then back-pressure
    retry_store: Size = Size(10 << 30)  # Maximum size of the waiting events; then back-pressure
    registrations_in_flight: int = 65_536  # Ids a joiner may have in flight to the registry
    # Missed keys that an event store remembers, so that events are retried as soon as one arrives; 16 to 32
    # bytes each.
    sought_keys: int = 1_000_000


class Output(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[output]``: the form of the output files."""

    roll_size: Size = Size(128 << 20)  # A larger output file is closed and a new one begun
    roll_age: Duration = Duration(300.0)  # An output file older than this is closed, too
    # ``gzip``: a closed file becomes ``.jsonl.gz`` once all its ids are cleared; see docs/output.md.
    compress: Literal["none", "gzip"] = "none"
    joined_at: bool = True  # Write ``joined_at`` into each record
    # 2: each slot's output is also kept in another datacentre; needs two datacentres; see
    # docs/datacentres.md#copies-of-the-output.
    copies: Literal[1, 2] = 1
    # How long readers wait for a silent keeper; then output durable in one place is shown, with an
    # alarm.
    copies_wait: Duration = Duration(60.0)
    copies_required: bool = False  # Readers wait for the copy without limit


class ClockSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[clock]``: the assumed accuracy of machines' clocks."""

    # S: the bound on clock uncertainty between any two machines; more than a round trip between two replicas.
    uncertainty: Duration = Duration(5.0)
    # A registry replica refuses to start without a synchronised clock, and proposes no boundary or reshard
    # while it has none; see docs/idregistry.md#clocks.
    require_sync: bool = False


class DispatcherSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[dispatcher]``: how dispatchers of several datacentres share the work."""

    # How long an event is left to its home datacentre before another takes it; unset: two commit times of the
    # registry, as measured.
    head_start: Duration | None = None
    # Share of the work for old events and retries while fresh events wait; 1: no preference; see
    # docs/dispatcher.md#retry-and-flow.
    catch_up_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.05


class JoinerSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[joiner]``: how joiners take over the slots of dead joiners."""

    # Another joiner of the same machine redoes and empties a slot whose joiner has been gone this long; ``0``: never;
    # see docs/verification.md#slots.
    adopt_after: Duration = Duration(60.0)


class VerifierSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[verifier]``: the continuous verifier of each pipeline."""

    # Share of one core for checking output records against their sources; ``0``: they are cleared and not checked.
    check_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.25
    owned_alarm: Duration = Duration(300.0)  # Ids registered but unwritten for longer raise an alarm
    # How long a record's source is searched for before it counts as ``no-source``. Checking of that slot waits
    # meanwhile, clearing does not.
    log_grace: Duration = Duration(30.0)
    # Event ids remembered to notice duplicates in the output; some 30 bytes each.
    window: Annotated[int, msgspec.Meta(ge=1)] = 262_144


class TlsSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tls]``: every connection between processes is mutual TLS. Without it all are plain text."""

    # Directory with ``ca.crt``, and ``IDENTITY.crt`` and ``IDENTITY.key`` of each process that runs on this machine.
    directory: str


class TelemetrySettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[telemetry]``: data that processes send by OTLP (docs/opentelemetry.md)."""

    # Collector, ``http://HOST:PORT`` (OTLP over HTTP).
    endpoint: Annotated[str, msgspec.Meta(pattern=r"^https?://[^/]+")]
    traces: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01  # Share of batches that are traced; 0: none
    interval: Duration = Duration(15.0)  # Time between two readings of all metrics; 0: none are sent
    logs: bool = True  # Whether log lines are sent


class Wan(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[wan]``: ``photon up`` puts a proxy between the regions of a deployment on one machine."""

    control: str  # host:port at which ``photon wan`` tells the proxy to delay, drop, reset or refuse
    round_trip: Duration = Duration(0.0)  # Initial round trip between any two regions


class Replica(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[registry.replicas.NAME]``: one registry process."""

    address: str  # host:port, for clients and for the other replicas
    directory: str = ""  # Directory of its log and snapshots; unset: registry/NAME
    datacentre: str = ""  # the datacentre whose failure takes it down; need not have a pipeline
    region: str = ""  # unset: its datacentre's region
    together: bool = False  # it runs in its datacentre's process


class RegistrySettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[registry]``: the id registry, shared by all datacentres."""

    shards: int = 1  # Raft groups that the ids are spread over
    tolerate: int | None = None  # Replicas that may be lost; f needs 2 f + 1 replicas
    # Tables ``[registry.replicas.NAME]``; 1, 3 or 5.
    replicas: dict[str, Replica] = msgspec.field(default_factory=dict)
    retention: Duration | None = None  # How long ids are kept; unset: permanently
    # Memory for the ids of one replica (some 46 bytes each); at the limit no more are accepted.
    memory_limit: Size | None = None
    # A shard's lead moves to a replica in the region of the datacentre that registers most of its ids.
    follow_callers: bool = True
    # Membership epoch of a new registry; later its replicas keep it, and ``photon registry replace`` increases it.
    epoch: int = 1


class HBaseSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME.hbase]``: the event store's file map is a table of this HBase."""

    thrift: str  # host:port of HBase's Thrift server (version 1, which happybase speaks)
    # host:port of HBase's Thrift 2 server, for ``photon eventstore init``; unset: it prints commands for HBase's
    # shell.
    admin: str | None = None
    # Name of the table; unset: ``photon_`` and the datacentre's name. No two event stores share one.
    table: str | None = None
    # How long its rows live; unset: a quarter longer than ``registry.retention``, or permanently if that is unset.
    # It must not be shorter than ids are kept.
    ttl: Duration | None = None


class TablesSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[tables]``: tables kept up to date by transactions and observers (docs/tables.md)."""

    file: str = "tables.db"  # SQLite's file, for the programs of one machine; not used with ``thrift``
    # host:port of each Thrift 2 server of the HBase that holds them; the registry's replicas then hand out the
    # timestamps, so they are restarted once it is set.
    thrift: list[str] = msgspec.field(default_factory=list)
    table: str = "photon_tables"  # HBase's table, which holds all of them
    # Your assertion that acknowledged writes survive a crash of this HBase, because it runs on HDFS
    # (docs/tables.md#what-it-does-not-do).
    durable: bool = False
    # How long old versions are kept; older transactions and snapshots are refused, unless they are held
    # (docs/tables.md#old-versions).
    keep: Duration = Duration(3600.0)


class ObserveSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[observe.NAME]``: the observers of a program, kept running (docs/tables.md)."""

    file: str  # The program: a Python file
    addresses: list[str]  # host:port of the health and metrics of each process; there are as many processes
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4  # Observers that run concurrently in each process


class ComputeSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[compute.NAME]``: a process with computations over published records (docs/computations.md)."""

    file: str  # Python file with their topology; paths in it are relative to it
    state: str  # Directory of their state
    # Number of processes, and of intervals for the keys of a new state; 1 to 64.
    processes: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    # host:port of the metrics and health of the first process, which reports on all; unset: no other process can
    # query them.
    address: str | None = None

    def names(self, name: str) -> list[str]:
        """Returns the names of the processes: ``spend``, ``spend-2``, …"""
        return [name, *(f"{name}-{n}" for n in range(2, self.processes + 1))]


class SinkSettings(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[sink.NAME]``: a process that writes a datacentre's published records to another place (docs/objects.md)."""

    # ``s3://`` or ``gs://`` URL, ``kafka://HOST:PORT/TOPIC``, ``postgresql://`` address, or a directory for Parquet
    # files.
    into: str
    datacentre: str | None = None  # Datacentre whose output is written; unset: the only one
    kinds: list[str] = msgspec.field(default_factory=lambda: ["joined"])  # Kinds of records
    table: str | None = None  # PostgreSQL: TABLE or SCHEMA.TABLE; unset: NAME
    client: str | None = None  # Kafka: file with client properties, in librdkafka's spelling
    # host:port of its metrics and health; unset: no other process can query it.
    address: str | None = None


class Pipeline(_Table, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[datacentre.NAME]``: one full pipeline of one join."""

    join: str  # The join that it runs
    # Directory of the primary logs; leave out for another join's output (docs/chains.md), which the relay puts below
    # ``state``; or a topic (docs/kafka.md), ``kafka://HOST:PORT/TOPIC``.
    primary: str = ""
    foreign: str = ""  # The same for the foreign side
    primary_topic: str | None = None  # The topic, if ``primary`` names the directory for its files
    foreign_topic: str | None = None  # The same for the foreign side
    # File with properties of Kafka's clients (docs/kafka.md), in librdkafka's spelling.
    kafka_client: str | None = None
    output: str = ""  # Directory of the output; unset: NAME/output
    state: str = ""  # Directory for slots, dispatcher state and file map; unset: NAME/state
    # host:port of its process, ``photon serve datacentre NAME``: all parts that are not ``apart``.
    address: str = ""
    # Parts in processes of their own (``photon serve PART``) and their addresses, as ``{ verifier = "host:port" }``.
    # For several joiners, dispatchers or cache nodes: a list, or the first address, with consecutive ports.
    apart: dict[str, str | list[str]] = msgspec.field(default_factory=dict)
    # Joiners, each with its slot ``NAME-K``. Several are always apart; default addresses: the ports from 10 above
    # ``address``. 0: all are started by ``photon serve joiner auto`` (docs/dispatcher.md#scaling).
    joiners: Annotated[int, msgspec.Meta(ge=0, le=64)] = 1
    # Slots that were retired (docs/operations/lose-state.md#a-joiners-slot), whose names no joiner takes again.
    retired: list[str] = msgspec.field(default_factory=list)
    # Table ``[datacentre.NAME.hbase]``: the event store's file map is a table of HBase; unset: it is in ``state``.
    hbase: HBaseSettings | None = None
    # The joining processes: services, or ``"spark"``: one application of Spark (docs/spark.md#join) in their
    # place.
    pipeline: Literal["services", "spark"] = "services"
    # Spark's own settings for it, as ``"spark.master" = "spark://host:7077"``.
    spark: dict[str, str] = msgspec.field(default_factory=dict)
    # The slot that Spark writes; unset: NAME-spark. Another name is needed once that slot was retired.
    slot: str | None = None
    # Number of dispatchers on one machine, which divide the foreign logs (docs/dispatcher.md#several-dispatchers).
    # Several are always apart; default addresses: the ports from 80 above ``address``.
    dispatchers: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1
    # host:port of its status page, plain HTTP (docs/watching.md#photon-status); unset: 127.0.0.1 and the port after
    # ``address``'s; empty: it has none.
    status: str | None = None
    # How changes in its log directories are noticed. ``auto``: inotify, polling on network file systems; ``native``:
    # always inotify; ``poll``: always polling (docs/dispatcher.md#tailing).
    watch: Literal["auto", "native", "poll"] = "auto"
    region: str | None = None  # Its region; unset: one of its own, named like the datacentre

    @property
    def on_spark(self) -> bool:
        """True if ``photon spark join`` replaces dispatcher and joiners."""
        return self.pipeline == "spark"

    def slot_at(self, datacentre: str, place: int, places: int) -> str:
        """Returns a joiner's slot: the first of NAME-place, NAME-(place + places), … that is not retired."""
        names = (f"{datacentre}-{number}" for number in itertools.count(place, places))
        return next(name for name in names if name not in self.retired)

    def spark_slot(self, datacentre: str) -> str:
        """Returns the slot to which the pipeline's join on Spark writes."""
        return self.slot or f"{datacentre}-spark"

    def logs(self, side: Side) -> str:
        """Returns the directory of a side's logs."""
        return self.primary if side == "primary" else self.foreign

    def topic(self, side: Side) -> str | None:
        """Returns the topic from which a side's logs are made; ``None`` if there is none."""
        return self.primary_topic if side == "primary" else self.foreign_topic

    def relayed_directory(self, side: Side) -> str:
        """Returns the default directory in which the relay puts another join's output, or a topic."""
        return f"{self.state}/upstream/{side}"

    def dispatcher_names(self) -> list[str]:
        """Returns the names of the pipeline's dispatchers; a single dispatcher has an empty name."""
        count = self.dispatchers
        return [""] if count == 1 else [f"{number}of{count}" for number in range(1, count + 1)]

    def at(self, part: str) -> list[str]:
        """Returns the addresses of a part's processes, or of the datacentre's process if the part runs there."""
        count = {"joiner": self.joiners, "dispatcher": self.dispatchers}.get(part, 1)
        said = self.apart.get(part) or (self.own_address(part) if count > 1 else self.address)
        return said if isinstance(said, list) else [_shifted(said, number) for number in range(count)]

    def own_address(self, part: str) -> str:
        """Returns the default address of the first process of a part that is apart."""
        return _shifted(self.address, ADAPTER_PORTS[part])

    def is_apart(self, part: str) -> bool:
        """True if the part runs in processes of its own."""
        return part in self.apart or len(self.at(part)) > 1

    @property
    def eventstore(self) -> str:
        """Returns the event store's address."""
        return self.at("eventstore")[0]

    @property
    def page(self) -> str:
        """Returns the status page's address; empty if there is none."""
        own = _shifted(f"127.0.0.1:{self.address.rpartition(':')[2]}", 1) if self.address else ""
        return (self.at("status")[0] if "status" in self.apart else own) if self.status is None else self.status


def _shifted(address: str, by: int) -> str:
    host, colon, port = address.rpartition(":")
    return f"{host}:{int(port) + by}" if colon and port.isdigit() else address


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
    # File of 16 to 64 random bytes that keys the digests, the same in every datacentre and never changed (``head -c
    # 32 /dev/urandom > key``); the services need it, ``photon join`` draws its own.
    key_file: str | None = None

    def relayed(self, datacentre: str) -> dict[Side, str]:
        """Returns the sides whose logs a datacentre's relay makes, each with its topic or upstream join.

        The relay does not make the logs of a chained side that has a directory of its own.
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
        """Returns the slots that write a datacentre's output, not counting slots of ``serve joiner auto``."""
        pipeline = self.datacentre[datacentre]
        return [pipeline.spark_slot(datacentre)] if pipeline.on_spark else list(self.joiners(datacentre))

    def joiners(self, datacentre: str) -> dict[str, str]:
        """Returns slot -> address of a datacentre's joiners, not counting ``serve joiner auto``."""
        pipeline = self.datacentre[datacentre]
        at = pipeline.at("joiner")
        return {pipeline.slot_at(datacentre, place, len(at)): address for place, address in enumerate(at, 1)}

    def inside(self, datacentre: str) -> list[Part]:
        """Returns the parts that run in a datacentre's process."""
        pipeline = self.datacentre[datacentre]
        wanted: dict[Part, object] = {
            "eventstore": True, "copies": self.output.copies > 1,
            "joiner": pipeline.joiners and not pipeline.on_spark, "verifier": True,
            "dispatcher": not pipeline.on_spark, "relay": self.relayed(datacentre), "status": pipeline.page,
        }  # fmt: skip
        return [part for part, wants in wanted.items() if wants and not pipeline.is_apart(part)]

    def caches(self, datacentre: str) -> dict[str, str]:
        """Returns name -> address of a datacentre's cache nodes; empty if the event store keeps recent records."""
        at = self.datacentre[datacentre].at("cache") if "cache" in self.datacentre[datacentre].apart else []
        return {f"{datacentre}-c{number}": address for number, address in enumerate(at, 1)}

    def needs(self, join: str) -> set[str]:
        """Returns ``join`` and the joins whose output it reads, directly or indirectly."""
        above = (up for side in SIDES if (up := self.join[join].upstream(side)) is not None)
        return {join}.union(*(self.needs(up) for up in above))

    def chain(self, join: str | None = None) -> list[str]:
        """Returns the joins of datacentres, or those that ``join`` needs: each before those whose output it reads."""
        needed = {name: len(self.needs(name)) for name in (self.needs(join) if join else self.join)}
        found = sorted(needed, key=lambda name: (-needed[name], name))
        return [name for name in found if self.joining(name)]

    def joining(self, join: str) -> list[str]:
        return sorted(name for name, pipeline in self.datacentre.items() if pipeline.join == join)

    def beside(self, datacentre: str) -> list[str]:
        return [name for name in self.joining(self.datacentre[datacentre].join) if name != datacentre]

    def region(self, datacentre: str) -> str:
        """Returns the region that a datacentre's pipeline names; by default, each datacentre is its own region."""
        pipeline = self.datacentre.get(datacentre)
        return (pipeline is not None and pipeline.region) or datacentre

    def region_of_replica(self, name: str) -> str:
        """Returns the region of a registry replica; empty if unknown."""
        replica = self.registry.replicas[name]
        return replica.region or self.region(replica.datacentre)

    def replicas_near(self) -> dict[str, tuple[str, ...]]:
        """Returns, by datacentre, the registry replicas of its region."""
        regions = {name: self.region_of_replica(name) for name in self.registry.replicas}
        return {
            datacentre: tuple(name for name, region in regions.items() if region == self.region(datacentre))
            for datacentre in self.datacentre
        }


def tables() -> Mapping[str, type[_Table]]:
    """Returns the type of each table by its place in the file, for the documentation and its test."""
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
    }
