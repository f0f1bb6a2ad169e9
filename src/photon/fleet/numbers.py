"""Sums the metrics of several processes, and compares them between two moments. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from photon.config.metrics.families import Sample
from photon.fleet.polling import Heard
from photon.fleet.processes import READERS, Process


class Numbers:
    """All metric samples of one moment. If a process is listed twice, its last samples count."""

    def __init__(self, heard: Iterable[Heard]) -> None:
        self._by_process: dict[Process, dict[str, list[Sample]]] = {}
        for each in heard:
            if each.up:
                values = self._by_process[each.process] = {}
                for sample in (sample for family in each.families for sample in family.samples):
                    values.setdefault(sample.name, []).append(sample)

    def __iter__(self) -> Iterator[Process]:
        """Yields the processes that reported samples."""
        return iter(self._by_process)

    def __contains__(self, process: Process) -> bool:
        return process in self._by_process

    def each(self, name: str, **labels: str) -> list[tuple[Process, Sample]]:
        found = ((who, sample) for who, values in self._by_process.items() for sample in values.get(name, ()))
        return [(who, sample) for who, sample in found if labels.items() <= sample.labels.items()]

    def sum(self, name: str, **labels: str) -> float:
        """Returns the sum of a metric; 0 if no process reports it."""
        return sum(sample.value for _, sample in self.each(name, **labels))

    def max(self, name: str, **labels: str) -> float:
        """Returns the largest value of a metric among processes; 0 if none reports it."""
        return max((sample.value for _, sample in self.each(name, **labels)), default=0.0)

    def of(self, who: Process, name: str, **labels: str) -> float | None:
        """Returns one process's value, summed over labels that are not given; `None` if it reports none."""
        found = self._by_process.get(who, {}).get(name, ())
        values = [sample.value for sample in found if labels.items() <= sample.labels.items()]
        return sum(values) if values else None

    def labels(self, who: Process, label: str) -> list[str]:
        found = self._by_process.get(who, {}).values()
        return sorted({sample.labels[label] for some in found for sample in some if label in sample.labels})

    def by(self, label: str, name: str) -> dict[str, float]:
        """Returns the highest value of a metric for each value of a label."""
        found: dict[str, float] = {}
        for _, sample in self.each(name):
            key = sample.labels.get(label, "")
            found[key] = max(found.get(key, sample.value), sample.value)
        return found

    def buckets(self, name: str) -> dict[float, float]:
        """Returns a histogram's buckets, summed over processes: upper bound -> number of observations up to it."""
        found: dict[float, float] = {}
        for _, sample in self.each(f"{name}_bucket"):
            bound = float(sample.labels.get("le", "inf"))
            found[bound] = found.get(bound, 0.0) + sample.value
        return found


class Change:
    """The changes of each process's metrics since its earliest known report. Compares reports of the same process
    only, because a restarted one may start with counts kept on disk. Without an earlier report, rates are unknown."""

    def __init__(self, now: Numbers, past: Iterable[tuple[float, Numbers]], now_s: float) -> None:
        """``past``: (time, numbers) of earlier moments, oldest first."""
        self.now = now
        self._since: dict[Process, tuple[Numbers, float]] = {}
        self._before: Numbers | None = None
        for at_s, then in past:
            self._before = self._before or then
            for who in then:
                if who not in self._since and _same(who, now, then) and at_s < now_s:
                    self._since[who] = (then, now_s - at_s)

    def sum(self, name: str, **labels: str) -> float | None:
        """Returns the summed rate per second of a metric that each process counts for itself; `None` if unknown."""
        found = [each for who in self._since if (each := self.of(who, name, **labels)) is not None]
        return sum(found) if found else self._silent(name, **labels)

    def of(self, who: Process, *names: str, **labels: str) -> float | None:
        """Returns one process's rate per second, summed over ``names``; `None` if unknown."""
        if who not in self._since:
            return None
        then, seconds = self._since[who]
        found = [(self.now.of(who, name, **labels), then.of(who, name, **labels)) for name in names]
        rates = [rate(now, before or 0.0, seconds) for now, before in found if now is not None]
        known = [each for each in rates if each is not None]
        return sum(known) if known else None

    def _silent(self, name: str, **labels: str) -> float | None:
        """Returns the rate of a metric for which no process's rate is known: 0 if no process reports it, else
        `None`."""
        return None if self._before is None or self.now.each(name, **labels) else 0.0

    def ratio(self, part: str, rest: str) -> float | None:
        """Returns part / (part + rest), from rates; `None` if unknown or both are 0."""
        of_part, of_rest = self.sum(part), self.sum(rest)
        if of_part is None or of_rest is None or of_part + of_rest == 0:
            return None
        return of_part / (of_part + of_rest)

    def buckets(self, name: str) -> dict[float, float]:
        """Returns a histogram's growth; the whole histogram if there is no earlier moment."""
        now = self.now.buckets(name)
        return now if self._before is None else since(now, self._before.buckets(name))


def _same(who: Process, now: Numbers, before: Numbers) -> bool:
    """Returns True if the process did not restart between the two moments."""
    began = "process_start_time_seconds"
    return who in before and now.of(who, began) == before.of(who, began)


def rate(now: float, before: float | None, seconds: float) -> float | None:
    """Returns the rate per second; `None` if unknown. A counter that was reset counts from 0."""
    if before is None or seconds <= 0:
        return None
    return (now - before if now >= before else now) / seconds


def since(now: Mapping[float, float], before: Mapping[float, float]) -> dict[float, float]:
    """Returns the growth of a histogram's buckets; all of them if it was reset."""
    grown = {bound: count - before.get(bound, 0.0) for bound, count in now.items()}
    return dict(now) if any(count < 0 for count in grown.values()) else grown


def quantile(buckets: Mapping[float, float], q: float) -> float | None:
    """Returns a quantile, interpolated linearly within a bucket as Prometheus does. Returns `None` for an empty
    histogram, and the last bound for values above it."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, below, low = q * total, 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted:
            if bound == float("inf"):
                return low
            return low + (bound - low) * ((wanted - below) / (count - below) if count > below else 1.0)
        below, low = count, bound
    return low


def share_within(buckets: Mapping[float, float], bound: float) -> float | None:
    """Returns the share of observations up to ``bound``, which must be one of the bounds."""
    total = max(buckets.values(), default=0.0)
    return buckets[bound] / total if total > 0 and bound in buckets else None


def merged_ledger(ledgers: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the sum of the ledgers of a pipeline's dispatchers."""
    total, hours, unbalanced = Counter[str](), dict[Any, Counter[str]](), 0
    for one in ledgers:
        total.update(one.get("total", {}))
        unbalanced += one.get("unbalanced_hours", 0)
        for line in one.get("ledger", []):
            counts = {column: count for column, count in line.items() if column != "hour_s"}
            hours.setdefault(line["hour_s"], Counter()).update(counts)
    known = sorted(hours, key=lambda hour_s: -1 if hour_s is None else hour_s, reverse=True)
    lines = [{"hour_s": hour_s, **hours[hour_s]} for hour_s in known]
    return {"total": dict(total), "ledger": lines, "unbalanced_hours": unbalanced}


def lag_rows(heard: Iterable[Heard]) -> list[dict[str, Any]]:
    """Returns rows about lagging foreign logs, as reported by their readers."""
    return [
        {"datacentre": each.process.datacentre, "dispatcher": each.process.name, **row}
        for each in heard
        if each.process.kind in READERS
        for row in each.details.get("lag", ())
    ]


def longest_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -row["seconds"])


def counts_of(heard: Iterable[Heard]) -> dict[str, int]:
    """Returns a pipeline's ledger by column as its dispatchers count it now, which is ahead of the committed one."""
    now, prefix = Numbers(heard), "photon_dispatcher"
    apart = {
        "read": "read",
        "reread": "reread",
        "wasted": "wasted_joins",
        "retimed": "retimed",
        "ambiguous": "ambiguous",
        "unpaired": "unpaired",
    }
    found = {column: int(now.sum(f"{prefix}_{name}_total")) for column, name in apart.items()}
    verdicts = Counter[str]()
    for _, sample in now.each(f"{prefix}_events_total"):
        verdicts[sample.labels["verdict"]] += int(sample.value)
    return {**found, **verdicts, "pending": int(now.sum(f"{prefix}_pending_events"))}
