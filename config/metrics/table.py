"""All metrics: name, kind, labels and meaning, in one place. The site makes its page of metrics from it.

Names follow Prometheus: ``photon_PART_WHAT_UNIT``, base units (seconds, bytes), ``_total`` for values that only grow.
Labels are bounded: joins, datacentres, shards, kinds and directories are those of the deployment. The status process
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
    *_gauges("photon", ("version",), build_info="1, for each version that runs."),
    *_gauges("photon", (), clock_seconds="Unix time by the clock of the process's machine, as it answered."),
    *_gauges("photon", ("directory",), disk_free_bytes="Free on the disk of one of its directories."),
    *_counters("photon_metrics", (), failures="Parts of a process whose metrics could not be read."),
    *_counters("photon_objects", ("kind",), requests="Sent to object stores: lists, reads, writes, deletes."),
    *_counters(
        "photon_objects",
        (),
        retries="Requests to object stores that were sent again.",
        read_bytes="Read from object stores.",
        written_bytes="Written to object stores.",
    ),
]

_DISPATCHER = [
    *_counters(
        "photon_dispatcher",
        _EVENT_PARTS,
        read="Events read from foreign logs.",
        reread="Lines read a second time that were counted already.",
        unpaired="Events that are unmatched though their primary event is there: out of the join's bounds.",
        ambiguous="Events joined or rejected though several different primary events have their key.",
        wasted_joins="Joins thrown away because another datacentre had registered first.",
        retimed="Lines whose id was registered with an event time more than clock.uncertainty off: not joined again.",
        look_ups="Events asked about in the registry, since the start.",
        attempts="Batches sent to joiners, since the start.",
        arrived="Tries of events because their primary event had arrived, since the start.",
    ),
    *_counters("photon_dispatcher", ("join", "verdict"), events="Events with a verdict, by verdict."),
    *_counters("photon_dispatcher", ("join", "kind"), log_problems="Problems met in log files, by kind."),
    *_gauges(
        "photon_dispatcher",
        _EVENT_PARTS,
        pending_events="Events read and without a verdict.",
        oldest_pending_seconds="Since the first read of the oldest event without a verdict; 0: none.",
        logs="Foreign logs known.",
        logs_behind="Foreign logs not read to their ends.",
        lag_bytes="Of foreign logs, on disk and not read.",
        lag_seconds="Since the oldest foreign byte not read was written; 0: all are read.",
        log_bytes="Of foreign logs, on disk as last seen.",
        batches_in_flight="Batches sent to joiners and not answered.",
        retry_store_events="Events in the retry store.",
        retry_store_bytes="Of the retry store, as counted against limits.retry_store.",
        retry_store_oldest_seconds="Since the first read of the event that has been in the retry store for longest.",
        retry_store_limit_bytes="limits.retry_store.",
        joiners_failing="Joiners that are left alone for a while.",
        waiting_for_home_events="Events left to their home datacentre now.",
        head_start_seconds="How long events are left to their home.",
        reopened_ids="Ids that the registry gave up and nobody has registered since.",
        reopened_missing_ids="Of these, those whose record is in no log here.",
        caught_up="1: all logs are read and nothing waits in memory.",
        arrivals_followed="1: the event store tells which primary events have come; 0: back-off finds them.",
    ),
    *_gauges("photon_dispatcher", ("join", "home"), home_trusted="1: events are left to this home datacentre."),
    *_counters(
        "photon_dispatcher",
        ("join", "home"),
        left_to_home="Events left to their home datacentre.",
        home_in_time="Of these, registered by it before the head start was over.",
    ),
    Metric(
        "photon_dispatcher_join_seconds",
        Kind.HISTOGRAM,
        _EVENT_PARTS,
        "From reading an event's line to its join, of the events joined here.",
    ),
    Metric(
        "photon_dispatcher_event_age_seconds",
        Kind.HISTOGRAM,
        _EVENT_PARTS,
        "From the event's own time to its join: end to end (paper, figure 7).",
    ),
]

_JOINER = [
    *_gauges("photon_joiner", ("join",), slot_open="1: the slot is open and serves."),
    *_counters("photon_joiner", ("join", "slot", "outcome"), outcomes="Answers given to dispatchers, by outcome."),
    *_counters(
        "photon_joiner",
        ("join", "slot"),
        refused_batches="Batches refused because too much was under way.",
        redone_rows="Rows that the start found in the redo log and not in the output.",
    ),
    *_gauges(
        "photon_joiner",
        ("join", "slot"),
        open_ids="Ids being registered.",
        open_bytes="Of records being registered or written.",
        redo_log_bytes="Of the slot's redo log.",
        redo_log_limit_bytes="limits.redo_log.",
        copy_behind_bytes="Durable in the slot and not in its copy in another datacentre; absent: it has none.",
        copy_bypassed="1: what the copy does not have is shown to readers.",
        copy_trouble="1: nothing can be shipped to the copy until somebody repairs it.",
    ),
]

_COPIES = [
    *_gauges("photon_copies", (), slots="Slots of other datacentres whose copies are kept here."),
    *_counters(
        "photon_copies",
        (),
        received_bytes="Of output, taken in and durable.",
        refused="Requests that were refused: by a wrong place, an earlier incarnation, a seal, or damage.",
    ),
]

_EVENT_STORE = [
    *_counters(
        "photon_eventstore",
        _EVENT_PARTS,
        events="Primary events indexed.",
        duplicates="Second occurrences of a primary id.",
        bad_records="Primary records that cannot be read.",
        ambiguous_keys="Keys that look-ups have found several different primary events for.",
        cache_hits="Keys found in the cache, since the start.",
        cache_misses="Keys in primary logs and not in the cache, since the start.",
        cache_evictions="Cache segments dropped for room.",
        log_reads="Places looked at in primary logs, since the start.",
        log_read_bytes="Read from primary logs for look-ups, uncompressed.",
        sought_came="Keys that came after they had been asked for in vain.",
        sought_dropped="Keys asked for in vain and forgotten for want of room (limits.sought_keys).",
    ),
    *_gauges(
        "photon_eventstore",
        _EVENT_PARTS,
        lag_seconds="Since the time up to which all primary bytes are read; 0: all there will ever be.",
        lag_bytes="Of primary logs, on disk and not read.",
        logs="Primary logs in the file map.",
        cache_bytes="Held by the cache, cache nodes included as last heard.",
        missing_logs="Primary logs that look-ups need and that cannot be read.",
        missing_keys="Keys asked for that are in them, at least.",
        sought_keys="Keys asked for in vain and remembered: the dispatcher hears when one comes.",
    ),
]

_CACHE = [
    *_counters(
        "photon_cache",
        (),
        hits="Keys found.",
        misses="Keys not found.",
        evictions="Segments dropped for room.",
        fed_bytes="Of records taken in.",
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
        entry_ids="Ids in these entries; over entries: how well the server batches (paper, figure 10).",
        overloaded="Requests refused because too much was waiting.",
    ),
    *_gauges(
        "photon_registry",
        _SHARD,
        ids="Ids kept (paper, figure 11).",
        id_bytes="Of memory that they take.",
        leader="1: this replica leads the shard; shard 0 is the config group.",
        leader_known="1: this replica has heard of a leader of late.",
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
        commit_p50_seconds="From queue to commit, median of the leader's last 512 entries.",
        commit_p99_seconds="The same, 99th percentile.",
    ),
    *_gauges(
        "photon_registry",
        (),
        shards="Shards that take events.",
        config="Number of the shard config in force.",
        resharding="1: a change of the shards is under way.",
        memory_bytes="Of memory that all ids take.",
        memory_limit_bytes="registry.memory_limit; absent: no limit.",
        overloaded_memory="1: no further ids are taken for want of memory.",
        clock_objection="1: this replica's clock is in doubt; it proposes no boundary and no change of the shards.",
    ),
]

_VERIFIER = [
    *_gauges(
        "photon_verifier",
        ("slot",),
        published_bytes="Of output that readers may read.",
        cleared_bytes="Of it, ids cleared.",
        checked_bytes="Of it, compared with the source logs.",
        unverifiable_lines="Lines whose source log is gone.",
        owned_ids="Ids registered and not written, by the last look.",
        owned_oldest_seconds="For how long the oldest of them has been.",
        redo_log_bytes="Of the slot's redo log, as seen from outside.",
        slot_live="1: a process holds the slot.",
        slot_problem="1: the slot cannot be verified.",
    ),
    *_gauges("photon_verifier", ("slot", "finding"), alarms="Alarms that stand, by finding."),
]

# For the verifier's process.
_WATERMARK = [
    *_gauges("photon_watermark", ("kind",), lag_seconds="How far exact and percentile are behind the clock."),
    *_gauges("photon_watermark", (), waiting="Events before the percentile watermark that are not published."),
    *_counters("photon_watermark", (), late_records="Records that came after the exact watermark had passed them."),
]

_RELAY = [
    *_counters(
        "photon_relay",
        ("side", "upstream"),
        bytes="Of another join's output, written by the datacentre upstream and copied here, since the start.",
        events="Pairs of these.",
    ),
    *_gauges(
        "photon_relay",
        ("side", "upstream"),
        lag_bytes="Of that output, published and not copied.",
        lag_seconds="Since all that was published had been copied; less than a second is none.",
    ),
]

_SINK = [
    *_counters("photon_sink", (), bytes="Of output, handed over or written, since the start."),
    *_gauges("photon_sink", (), stalled_seconds="Since something keeps it from going on; 0: it goes on."),
]

_COMPUTE = [
    *_counters(
        "photon_computing",
        ("topology", "interval"),
        records="Records that computations processed, since the process began; so are the next.",
        repeated="Dropped: they had been taken before.",
        late="Records before their computation's watermark.",
        timers="Timers that were called.",
        produced="Records that computations produced.",
        published="Of them, shown to readers.",
    ),
    *_gauges(
        "photon_computing",
        ("topology", "interval"),
        aside="Records and timers that are put aside: a computation failed on them.",
    ),
    *_gauges(
        "photon_computing",
        (),
        running="1: it computes; 0: it could not be begun, or has ended.",
        alarms="What wants a person: the status page says it.",
    ),
    *_gauges(
        "photon_computing",
        ("topology", "computation"),
        lag_seconds="By how much its watermark is behind the clock, over all intervals.",
        still_seconds="Since that has moved.",
    ),
    *_gauges(
        "photon_computing",
        ("topology", "interval", "computation"),
        watermark_seconds="Unix time of the watermark up to which it has processed its input.",
        waiting="Events before the watermark that may still come.",
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
    *_gauges("photon", ("datacentre", "service", "process"), up="1: the process says its metrics; 0: it does not."),
    *_gauges("photon_status", (), gather_seconds="What asking all processes took, the last time."),
]

# For a registry replica's process, if tables.thrift is set.
_ORACLE = [
    *_counters(
        "photon_oracle",
        (),
        timestamps="Handed out by this replica, since the start.",
        requests="Answered with them.",
        entries="Raft entries for these; requests over entries: how well they are batched.",
    ),
    *_gauges("photon_oracle", (), leader="1: this replica leads the oracle.", term="Raft term of its group."),
]

# For observers: photon serve observe, and photon table observe --metrics.
TABLES = [
    *_counters(
        "photon_tables",
        (),
        commits="Transactions committed, since the start.",
        conflicts="Transactions that met another one and began again.",
        rolled_back="Locks of others taken back.",
        rolled_forward="Locks of others turned into what they were for.",
        reads="Reads of the store, each a round trip for any number of rows.",
        mutates="Calls that lock or commit cells.",
        round_trips="To HBase's Thrift servers and to the registry; 0 for SQLite.",
        scans="Looks for notifications.",
        locks_met="Reads that met a lock.",
        observed="Runs of observers that committed.",
        observers_met="Rows at which another worker was met.",
        observers_failed="Runs of observers that raised.",
        collected="Old versions removed.",
    ),
    *_gauges(
        "photon_tables",
        (),
        store_up="1: the store answered the last look.",
        dirty_cells="That wait for observers, at most 10,000 of a table.",
        oldest_dirty_seconds="Since the oldest change that waits for observers has been the same one; 0: none waits.",
        safe_point_age_seconds="Since the safe point was moved last, or this process began if it never was.",
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
        waiting_bound_events="Patience times the events a second since the start: as many may wait in the end.",
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
