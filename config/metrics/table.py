"""All metrics: name, kind, labels and meaning, in one place. The site makes its page of metrics from it.

Names follow Prometheus: ``photon_PART_WHAT_UNIT``, base units (seconds, bytes), ``_total`` for values that only grow.
Labels are bounded: they name joins, datacentres, shards, kinds and directories of the deployment. The status process
adds ``datacentre``, ``service`` and ``process`` to each sample.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


PROCESS = "every process"  # the other services are kinds of ``photon serve``

_EVENT_PARTS = ("join",)


def _counters(prefix: str, labels: tuple[str, ...], **helps: str) -> list[Metric]:
    return [Metric(f"{prefix}_{name}_total", Kind.COUNTER, labels, text) for name, text in helps.items()]


def _gauges(prefix: str, labels: tuple[str, ...], **helps: str) -> list[Metric]:
    return [Metric(f"{prefix}_{name}", Kind.GAUGE, labels, text) for name, text in helps.items()]


_OF_PROCESS = [
    *_gauges("photon", ("version",), build_info="1 for each running version."),
    *_gauges("photon", (), clock_seconds="Unix time by the clock of the process's machine, when it answered."),
    *_gauges("photon", ("directory",), disk_free_bytes="Free space on the disk of one of the process's directories."),
    *_counters("photon_metrics", (), failures="Parts of a process whose metrics could not be read."),
    *_counters("photon_objects", ("kind",), requests="Requests to object stores: lists, reads, writes, deletes."),
    *_counters(
        "photon_objects",
        (),
        retries="Requests to object stores that were sent again.",
        read_bytes="Bytes read from object stores.",
        written_bytes="Bytes written to object stores.",
    ),
]

_DISPATCHER = [
    *_counters(
        "photon_dispatcher",
        _EVENT_PARTS,
        read="Events read from foreign logs.",
        reread="Lines that were already counted and were read again.",
        unpaired="Events that are unmatched because their primary event is outside the join's bounds.",
        ambiguous="Events joined or rejected though several different primary events have their key.",
        wasted_joins="Joins thrown away because another datacentre had registered first.",
        retimed="Lines whose id was registered with an event time more than clock.uncertainty off: not joined again.",
        look_ups="Look-ups of events in the registry, since the start.",
        attempts="Batches sent to joiners, since the start.",
        arrived="Retries of events whose primary event had arrived, since the start.",
    ),
    *_counters("photon_dispatcher", ("join", "verdict"), events="Events with a verdict, by verdict."),
    *_counters("photon_dispatcher", ("join", "kind"), log_problems="Problems found in log files, by kind."),
    *_gauges(
        "photon_dispatcher",
        _EVENT_PARTS,
        pending_events="Events read that have no verdict yet.",
        oldest_pending_seconds="Time since the oldest event without a verdict was first read; 0: none.",
        logs="Foreign logs known.",
        logs_behind="Foreign logs not read to their ends.",
        lag_bytes="Unread bytes of foreign logs on disk.",
        lag_seconds="Time since the oldest unread foreign byte was written; 0: all are read.",
        log_bytes="Size of foreign logs on disk, as last seen.",
        batches_in_flight="Batches sent to joiners and not yet answered.",
        retry_store_events="Events in the retry store.",
        retry_store_bytes="Size of the retry store, as counted against limits.retry_store.",
        retry_store_oldest_seconds="Time since the first read of the event that has been in the retry store longest.",
        retry_store_limit_bytes="limits.retry_store.",
        joiners_failing="Joiners that are temporarily ejected.",
        waiting_for_home_events="Events currently left to their home datacentre.",
        head_start_seconds="Time for which events are left to their home.",
        reopened_ids="Ids that the registry gave up and that are not registered again.",
        reopened_missing_ids="Ids that the registry gave up and whose record is in no log here.",
        caught_up="1: all logs are read and nothing waits in memory.",
        arrivals_followed="1: the event store reports new primary events; 0: back-off finds them.",
    ),
    *_gauges("photon_dispatcher", ("join", "home"), home_trusted="1: events are left to this home datacentre."),
    *_counters(
        "photon_dispatcher",
        ("join", "home"),
        left_to_home="Events left to their home datacentre.",
        home_in_time="Events that their home datacentre registered within its head start.",
    ),
    Metric(
        "photon_dispatcher_join_seconds",
        Kind.HISTOGRAM,
        _EVENT_PARTS,
        "Time from reading an event's line to its join, for events joined here.",
    ),
    Metric(
        "photon_dispatcher_event_age_seconds",
        Kind.HISTOGRAM,
        _EVENT_PARTS,
        "Time from the event's own time to its join: end to end (paper, figure 7).",
    ),
]

_JOINER = [
    *_gauges("photon_joiner", ("join",), slot_open="1: the slot is open and serves."),
    *_counters("photon_joiner", ("join", "slot", "outcome"), outcomes="Answers given to dispatchers, by outcome."),
    *_counters(
        "photon_joiner",
        ("join", "slot"),
        refused_batches="Batches refused because too much was in progress.",
        redone_rows="Rows found at the start in the redo log but not in the output.",
    ),
    *_gauges(
        "photon_joiner",
        ("join", "slot"),
        open_ids="Ids being registered.",
        open_bytes="Bytes of records being registered or written.",
        redo_log_bytes="Size of the slot's redo log.",
        redo_log_limit_bytes="limits.redo_log.",
        copy_behind_bytes="Bytes durable in the slot but not in its copy in another datacentre; absent if none.",
        copy_bypassed="1: readers see output that the copy lacks.",
        copy_trouble="1: the copy cannot be extended until an operator repairs it.",
    ),
]

_COPIES = [
    *_gauges("photon_copies", (), slots="Slots of other datacentres whose copies are kept here."),
    *_counters(
        "photon_copies",
        (),
        received_bytes="Bytes of output received and durable.",
        refused="Requests refused, by reason: wrong place, earlier incarnation, seal or damage.",
    ),
]

_EVENT_STORE = [
    *_counters(
        "photon_eventstore",
        _EVENT_PARTS,
        events="Primary events indexed.",
        duplicates="Second occurrences of a primary id.",
        bad_records="Primary records that cannot be read.",
        ambiguous_keys="Keys for which look-ups have found several different primary events.",
        cache_hits="Keys found in the cache, since the start.",
        cache_misses="Keys in primary logs and not in the cache, since the start.",
        cache_evictions="Cache segments dropped to make room.",
        log_reads="Places read in primary logs, since the start.",
        log_read_bytes="Bytes read from primary logs for look-ups, uncompressed.",
        sought_came="Keys that arrived after a look-up had missed them.",
        sought_dropped="Missed keys forgotten for lack of room (limits.sought_keys).",
    ),
    *_gauges(
        "photon_eventstore",
        _EVENT_PARTS,
        lag_seconds="Time since the last moment when no primary bytes were unread; 0: the logs are complete.",
        lag_bytes="Unread bytes of primary logs on disk.",
        logs="Primary logs in the file map.",
        cache_bytes="Size of the cache, including cache nodes as last reported.",
        missing_logs="Primary logs that look-ups need and that cannot be read.",
        missing_keys="Requested keys known to be in logs that cannot be read.",
        sought_keys="Missed keys that are remembered: the dispatcher is told when one arrives.",
    ),
]

_CACHE = [
    *_counters(
        "photon_cache",
        (),
        hits="Keys found.",
        misses="Keys not found.",
        evictions="Segments dropped to make room.",
        fed_bytes="Bytes of records received.",
        fed_events="Records taken in.",
    ),
    *_gauges(
        "photon_cache",
        (),
        bytes="Held now.",
        limit_bytes="Held at most.",
        entries="Records held.",
        segments="Segments held.",
    ),
]

_SHARD = ("shard",)
_REGISTRY = [
    *_counters(
        "photon_registry",
        _SHARD,
        entries="Raft entries of batches committed under this replica's leadership.",
        entry_ids="Ids in committed Raft entries; divided by entries, the mean batch size (paper, figure 10).",
        overloaded="Requests refused because too many were waiting.",
    ),
    *_gauges(
        "photon_registry",
        _SHARD,
        ids="Ids kept (paper, figure 11).",
        id_bytes="Memory used by ids kept.",
        leader="1: this replica leads the shard; shard 0 is the config group.",
        leader_known="1: this replica has heard from a leader recently.",
        term="Raft term.",
        applied_entries="Raft index up to which entries are applied.",
        healthy="0: the group stopped on an error.",
        writable="0: the disk is full.",
        queued_ids="Ids waiting for an entry.",
        alarms="Alarms that stand.",
        boundary_seconds="Unix time below which unknown ids are refused; absent: it has not moved.",
    ),
    *_gauges(
        "photon_registry",
        _SHARD,
        commit_p50_seconds="Time from queue to commit, median of the leader's last 512 entries.",
        commit_p99_seconds="Time from queue to commit, 99th percentile of the leader's last 512 entries.",
    ),
    *_gauges(
        "photon_registry",
        (),
        shards="Shards that take events.",
        config="Number of the shard config in force.",
        resharding="1: a change of the shards is under way.",
        memory_bytes="Memory of all ids.",
        memory_limit_bytes="registry.memory_limit; absent: no limit.",
        overloaded_memory="1: no further ids are accepted, for lack of memory.",
        clock_objection="1: this replica distrusts its clock, so it proposes no boundary or change of shards.",
    ),
]

_VERIFIER = [
    *_gauges(
        "photon_verifier",
        ("slot",),
        published_bytes="Bytes of output visible to readers.",
        cleared_bytes="Bytes of output whose ids are cleared.",
        checked_bytes="Bytes of output compared with the source logs.",
        unverifiable_lines="Lines whose source log is gone.",
        owned_ids="Ids registered but not written, as last seen.",
        owned_oldest_seconds="Age of the oldest id registered but not written.",
        redo_log_bytes="Size of the slot's redo log, as seen by the verifier.",
        slot_live="1: a process holds the slot.",
        slot_problem="1: the slot cannot be verified.",
    ),
    *_gauges("photon_verifier", ("slot", "finding"), alarms="Open alarms, by finding."),
]

# For the verifier's process.
_WATERMARK = [
    *_gauges(
        "photon_watermark", ("kind",), lag_seconds="Lag of the exact and percentile watermarks behind the clock."
    ),
    *_gauges("photon_watermark", (), waiting="Events before the percentile watermark that are not published."),
    *_counters("photon_watermark", (), late_records="Records published after the exact watermark had passed them."),
]

_RELAY = [
    *_counters(
        "photon_relay",
        ("side", "upstream"),
        bytes="Bytes of another join's output copied from the upstream datacentre, since the start.",
        events="Pairs of these.",
    ),
    *_gauges(
        "photon_relay",
        ("side", "upstream"),
        lag_bytes="Bytes of another join's output published but not yet copied.",
        lag_seconds="Time since the copy was last complete; less than a second counts as 0.",
    ),
]

_SINK = [
    *_counters("photon_sink", (), bytes="Bytes of output delivered, since the start."),
    *_gauges("photon_sink", (), stalled_seconds="Time for which delivery has been blocked; 0: not blocked."),
]

_COMPUTE = [
    *_counters(
        "photon_computing",
        ("topology", "interval"),
        records="Records processed by computations, since the process began.",
        repeated="Records dropped because they had been processed before.",
        late="Records older than their computation's watermark.",
        timers="Timers fired.",
        produced="Records that computations produced.",
        published="Produced records shown to readers.",
    ),
    *_gauges(
        "photon_computing",
        ("topology", "interval"),
        aside="Records and timers put aside because a computation failed on them.",
    ),
    *_gauges(
        "photon_computing",
        (),
        running="1: running; 0: could not be started, or has ended.",
        alarms="Problems that need an operator; see the status page.",
    ),
    *_gauges(
        "photon_computing",
        ("topology", "computation"),
        lag_seconds="Lag of the computation's watermark behind the clock, over all intervals.",
        still_seconds="Time since the computation's watermark moved.",
    ),
    *_gauges(
        "photon_computing",
        ("topology", "interval", "computation"),
        watermark_seconds="Unix time of the watermark; all input before it has been processed.",
        waiting="Events before the watermark that may still arrive.",
    ),
]

_WAN = [
    *_gauges(
        "photon_wan",
        ("source", "destination"),
        delay_seconds="One way.",
        fault="1: bytes from source to destination are dropped, reset or refused.",
    )
]

_STATUS = [
    *_gauges(
        "photon", ("datacentre", "service", "process"), up="1: the process reports its metrics; 0: it does not."
    ),
    *_gauges("photon_status", (), gather_seconds="Duration of the last poll of all processes."),
]

# For a registry replica's process, if tables.thrift is set.
_ORACLE = [
    *_counters(
        "photon_oracle",
        (),
        timestamps="Timestamps handed out by this replica, since the start.",
        requests="Requests answered with timestamps.",
        entries="Raft entries that reserve timestamps.",
    ),
    *_gauges("photon_oracle", (), leader="1: this replica leads the oracle.", term="Raft term of the oracle."),
]

# For observers: photon serve observe, and photon table observe --metrics.
TABLES = [
    *_counters(
        "photon_tables",
        (),
        commits="Transactions committed, since the start.",
        conflicts="Transactions that conflicted and were retried.",
        rolled_back="Locks of dead clients rolled back.",
        rolled_forward="Locks of dead clients rolled forward.",
        reads="Reads of the store, each a round trip for any number of rows.",
        mutates="Calls that lock or commit cells.",
        round_trips="Round trips to HBase's Thrift servers and to the registry; 0 for SQLite.",
        scans="Scans for notifications.",
        locks_met="Reads that encountered a lock.",
        observed="Runs of observers that committed.",
        observers_met="Rows skipped because another worker was processing them.",
        observers_failed="Runs of observers that raised an exception.",
        collected="Old versions removed.",
    ),
    *_gauges(
        "photon_tables",
        (),
        store_up="1: the store answered the last request.",
        dirty_cells="Cells waiting for observers, at most 10,000 per table.",
        oldest_dirty_seconds="Time for which the same change has been the oldest waiting one; 0: none is waiting.",
        safe_point_age_seconds="Time since the safe point last moved, or since this process began.",
    ),
]

_SPARK = [
    *_counters(
        "photon_spark",
        _EVENT_PARTS,
        batches="Batches committed, since the slot began.",
        logs_gone="Foreign logs that were gone before they were read, since the start.",
    ),
    *_gauges(
        "photon_spark",
        _EVENT_PARTS,
        batch_seconds="Duration of the newest batch.",
        waiting_bound_events="Maximum number of waiting events: patience times events per second since the start.",
    ),
]

SERVICES: dict[str, list[Metric]] = {
    PROCESS: _OF_PROCESS,
    "dispatcher": _DISPATCHER,
    "spark": _SPARK,
    "joiner": _JOINER,
    "eventstore": _EVENT_STORE,
    "cache": _CACHE,
    "registry": _REGISTRY,
    "oracle": _ORACLE,
    "tables": TABLES,
    "verifier": _VERIFIER,
    "watermark": _WATERMARK,
    "copies": _COPIES,
    "relay": _RELAY,
    "sink": _SINK,
    "computing": _COMPUTE,
    "wan": _WAN,
    "status": _STATUS,
}

METRICS: dict[str, Metric] = {metric.name: metric for metrics in SERVICES.values() for metric in metrics}


def _shown(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels)


def as_markdown() -> str:
    """Returns the tables of the site's page of metrics, one for each service."""
    parts = []
    for service, metrics in SERVICES.items():
        title = "Every process" if service == PROCESS else f"`{service}`"
        rows = [f"| `{each.name}` | {each.kind} | {_shown(each.labels)} | {each.help} |" for each in metrics]
        parts.append(
            "\n".join([f"## {title}", "", "| metric | kind | labels | meaning |", "| --- | --- | --- | --- |", *rows])
        )
    return "\n\n".join(parts) + "\n"
