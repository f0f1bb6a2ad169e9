"""Repeats decisions on records of a time range, or with ids that the registry gave up.

An order (``journal.Reread``) is processed in separate batches between ordinary ones, log by log in the order of their
identities. These batches do not move positions. Most of their events are already registered and are dropped; the
others get a verdict as if they were read now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from photon.adapters.logs.slices import StandingLog
from photon.batch.columns import split_digests
from photon.batch.events import Events
from photon.config.clock import NS_PER_S
from photon.dispatcher.replay.requests import matches
from photon.joiner.verdicts import tags_of
from photon.spark.pipeline.journal import Decision, LogAt, Part, Reread, RereadAt, Stretch
from photon.spark.pipeline.planner import PlanLimits, cut, packed

GONE_MAX = 1_000  # logs named as not read
AHEAD_NS = 24 * 3600 * NS_PER_S  # largest expected lead of an event's time over its log's last write


def parts_of(
    wanted: Reread, at: RereadAt, logs: Iterable[StandingLog], known: Mapping[str, LogAt], limits: PlanLimits
) -> list[Part]:
    """Returns the parts of a reread's next batch; none once all logs are done."""
    stretches: list[tuple[Stretch, int]] = []
    left = limits.reread_bytes
    for log in sorted(logs, key=lambda each: each.identity):
        decided = known.get(log.identity)
        if left <= 0 or decided is None or log.identity < at.identity or not matches(wanted.pattern, log.path):
            continue
        begin = log.data_start
        if log.identity == at.identity:
            if at.offset is None:
                continue
            begin = at.offset
        if decided.offset <= begin:
            continue
        for stretch, size in cut(_from_start(decided, log), begin, limits, decided.offset):
            if left > 0:
                stretches.append((stretch, size))
                left -= size
        if not log.splittable and decided.offset - begin > limits.packed_bytes:
            break  # not read to its end, so the next batch continues
    return packed(stretches, (), limits)


def _from_start(decided: LogAt, log: StandingLog) -> LogAt:
    return msgspec.structs.replace(decided, path=log.path, header=log.header, size=log.size)


def moved(at: RereadAt, number: int, parts: Sequence[Part], decisions: Sequence[Decision]) -> RereadAt:
    """Returns the reread's position after one of its batches is decided."""
    before = at if at.number == number else RereadAt(number)
    identity, offset, is_short, gone = before.identity, before.offset, False, dict.fromkeys(before.gone)
    for part, decision in zip(parts, decisions, strict=True):
        for stretch, reached in zip(part.stretches, decision.reached, strict=True):
            if is_short or (stretch.log.identity == identity and offset is None):
                continue  # an earlier stretch found it gone
            identity = stretch.log.identity
            if is_gone := reached.offset == stretch.begin and not reached.ended:
                gone[stretch.log.path] = None
            is_last = reached.ended if stretch.end is None else reached.offset >= stretch.log.offset
            offset = None if is_gone or is_last else reached.offset
            is_short = offset is not None and (stretch.end is None or offset < stretch.end)
    told = [decision.counts for decision in decisions]
    events = before.events + sum(each.get("reread", 0) for each in told)
    known = before.known + sum(each.get("reread_known", 0) for each in told)
    return RereadAt(number, identity, offset, events, known, list(gone)[:GONE_MAX])


def gone_from(wanted: Reread, at: RereadAt, logs: Iterable[StandingLog], known: Mapping[str, LogAt]) -> list[str]:
    """Returns paths of logs that were not reread: they were renamed meanwhile, cannot be read, or are gone and were
    written late enough to have events of the range."""
    there = {log.identity for log in logs}
    some = [log for name, log in known.items() if name not in there and log.mtime_ns + AHEAD_NS >= wanted.from_ns]
    return sorted({*at.gone, *(log.path for log in some if matches(wanted.pattern, log.path))})


def asked_for(wanted: Reread, events: Events) -> Events:
    """Returns the events covered by the reread, with the generations that they now need."""
    if not wanted.ids:
        return events.take(np.flatnonzero((events.times >= wanted.from_ns) & (events.times < wanted.to_ns)))
    by_digest = {each.digest: each for each in wanted.ids}
    digests = split_digests(events.digests)
    rows = np.array([row for row, digest in enumerate(digests) if digest in by_digest], np.intp)
    ids = [by_digest[digests[row]] for row in rows.tolist()]
    found = replace(events.take(rows), generations=np.array([each.generation for each in ids], np.uint32))
    if wanted.any_line:
        return found
    return found.take(np.flatnonzero(tags_of(found) == np.array([each.tag for each in ids], np.uint32)))
