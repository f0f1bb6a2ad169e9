"""Series of each alert of photon.rules.yml: a healthy hour, a fault until it fires, health until it resolves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

STEP_S = 5  # Prometheus scrapes and evaluates this often, by prometheus.yml
HOUR_S = 3600
AFTER_S = 60
MISSED_S = 300  # alerts that wait as long fire although a process misses a scrape, here halfway
_VALUE = re.compile(r"(\d*)(?:\+(\d+))?")

JOIN = 'datacentre="east",join="clicks"'
SLOT = 'datacentre="east",join="clicks",slot="east-1"'
PROCESS = 'datacentre="east",service="joiner",process="east-1"'
R1, R2, R3 = (f'datacentre="",service="registry",process="r{number}"' for number in (1, 2, 3))
COMPUTE = 'service="compute",process="spend"'
TABLES = 'datacentre="",service="observe",process="dedup-1"'


@dataclass(frozen=True, slots=True)
class Case:
    """``series``: name and labels -> its healthy and its faulty value in a scrape. ``5`` is a constant, ``+5`` grows
    by 5 from where it is, ``7+5`` from 7; ``_`` means no sample."""

    alert: str
    fires_s: int  # after the first faulty scrape
    resolves_s: int  # after the first healthy scrape
    series: dict[str, tuple[str, str]]
    labels: str  # of the alert

    def input_series(self, phases_s: Sequence[int]) -> list[dict[str, str]]:
        found = []
        for name, (healthy, faulty) in self.series.items():
            values = _values((healthy, faulty, healthy), phases_s)
            if self.fires_s >= MISSED_S and not name.startswith("photon_up{"):  # that is the page's
                values[(phases_s[0] + self.fires_s - MISSED_S // 2) // STEP_S] = "stale"
            found.append({"series": name, "values": " ".join(values)})
        return found


def _values(phases: Sequence[str], phases_s: Sequence[int]) -> list[str]:
    samples: list[str] = []
    last = 0
    for number, (value, seconds) in enumerate(zip(phases, phases_s, strict=True)):
        count = seconds // STEP_S
        if value == "_":
            samples += ["_"] * count
            continue
        found = _VALUE.fullmatch(value)
        assert found is not None, value
        by = int(found[2] or 0)
        start = int(found[1]) if found[1] and (number == 0 or found[2] is None) else last + by
        grown = list(accumulate([by] * (count - 1), initial=start))
        samples += map(str, grown)
        last = grown[-1]
    return samples


def as_promtool(cases: list[Case], said: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The promtool tests of ``cases``. ``said``: the labels and annotations of each rule.

    Cases share a test, which is most of the work, unless they share a metric.
    """
    groups: list[list[Case]] = []
    for case in cases:
        free = (each for each in groups if not _metrics(case) & set().union(*map(_metrics, each)))
        group = next(free, None)
        if group is None:
            groups.append(group := [])
        group.append(case)
    tests = [_test(group, said) for group in groups]
    return {"rule_files": ["photon.rules.yml"], "evaluation_interval": f"{STEP_S}s", "tests": tests}


def _test(group: list[Case], said: dict[str, dict[str, Any]]) -> dict[str, Any]:
    fault_s, healed_s = max(case.fires_s for case in group), max(case.resolves_s for case in group)
    phases_s = (HOUR_S, fault_s + AFTER_S, healed_s + AFTER_S)
    return {
        "interval": f"{STEP_S}s",
        "input_series": [series for case in group for series in case.input_series(phases_s)],
        "alert_rule_test": [check for case in group for check in _checks(case, said[case.alert], phases_s)],
    }


def _metrics(case: Case) -> set[str]:
    return {name.partition("{")[0] for name in case.series}


def _checks(case: Case, rule: dict[str, Any], phases_s: Sequence[int]) -> list[dict[str, Any]]:
    labels = dict(re.findall(r'(\w+)="([^"]*)"', case.labels))
    alert = {"exp_labels": labels | rule["labels"], "exp_annotations": rule["annotations"]}
    fires, resolves = HOUR_S + case.fires_s, sum(phases_s[:2]) + case.resolves_s
    silent = [*range(0, HOUR_S, 60), fires - STEP_S, resolves, sum(phases_s) - STEP_S]
    expected = [(at, []) for at in silent] + [(at, [alert]) for at in (fires, resolves - STEP_S)]
    return [{"eval_time": f"{at}s", "alertname": case.alert, "exp_alerts": some} for at, some in expected]


CASES = [
    Case("PhotonStatusDown", 10, 0, {'up{job="photon",instance="s:1"}': ("1", "0")}, 'job="photon",instance="s:1"'),
    Case("PhotonProcessDown", 30, 0, {f"photon_up{{{PROCESS}}}": ("1", "0")}, PROCESS),
    Case(
        "PhotonRegistryNoSpareReplica", 300, 0,
        {f"photon_up{{{R1}}}": ("1", "1"), f"photon_up{{{R2}}}": ("1", "1"), f"photon_up{{{R3}}}": ("1", "0")}, "",
    ),
    Case(
        "PhotonShardWithoutLeader", 60, 0,
        {'photon_registry_leader{shard="1",process="r1"}': ("1", "0"),
         'photon_registry_leader{shard="1",process="r2"}': ("0", "0")}, 'shard="1"',
    ),
    Case(  # no replica says its metrics
        "PhotonShardWithoutLeader", 60, 0,
        {'photon_registry_leader{shard="1",process="r1"}': ("1", "_"),
         f'photon_up{{{R1},instance="i"}}': ("1", "0"), f'photon_up{{{R1},instance="j"}}': ("1", "0")},
        'service="registry"',
    ),
    Case(
        "PhotonRegistryAlarm", 60, 0,
        {'photon_registry_alarms{shard="1",process="r1"}': ("0", "1")}, 'process="r1",shard="1"',
    ),
    Case("PhotonRegistryDiskFull", 60, 0, {'photon_registry_writable{process="r1"}': ("1", "0")}, 'process="r1"'),
    Case(
        "PhotonRegistryMemory", 600, 0,
        {'photon_registry_memory_bytes{process="r1"}': ("80", "90"),
         'photon_registry_memory_limit_bytes{process="r1"}': ("100", "100")}, 'process="r1"',
    ),
    Case("PhotonClockInDoubt", 300, 0, {'photon_registry_clock_objection{process="r1"}': ("0", "1")}, 'process="r1"'),
    Case("PhotonForeignLag", 600, 0, {f"photon_dispatcher_lag_seconds{{{JOIN}}}": ("200", "400")}, JOIN),
    Case(
        "PhotonOldestPending", 300, 0,
        {f"photon_dispatcher_oldest_pending_seconds{{{JOIN}}}": ("7000", "8000")}, JOIN,
    ),
    Case(
        "PhotonRetryStoreFilling", 600, 0,
        {f"photon_dispatcher_retry_store_bytes{{{JOIN}}}": ("70", "90"),
         f"photon_dispatcher_retry_store_limit_bytes{{{JOIN}}}": ("100", "100")}, JOIN,
    ),
    Case(
        "PhotonRedoLogFilling", 600, 0,
        {f"photon_joiner_redo_log_bytes{{{SLOT}}}": ("70", "90"),
         f"photon_joiner_redo_log_limit_bytes{{{SLOT}}}": ("100", "100")}, 'datacentre="east",slot="east-1"',
    ),
    Case(
        "PhotonVerifierAlarm", 0, 0,
        {f'photon_verifier_alarms{{{SLOT},finding="torn"}}': ("0", "1")},
        'datacentre="east",slot="east-1",finding="torn"',
    ),
    Case(
        "PhotonLateRecords", 0, 895,
        {'photon_watermark_late_records_total{datacentre="east"}': ("+0", "+1")}, 'datacentre="east"',
    ),
    Case(
        "PhotonNotCleared", 2695, 0,
        {f"photon_verifier_published_bytes{{{SLOT}}}": ("10+10", "+10"),
         f"photon_verifier_cleared_bytes{{{SLOT}}}": ("+10", "+0")}, 'datacentre="east",slot="east-1"',
    ),
    Case("PhotonOutputWithoutCopy", 300, 0, {f"photon_joiner_copy_bypassed{{{SLOT}}}": ("0", "1")}, SLOT),
    Case(
        "PhotonSlow", 615, 1780,
        {f'photon_dispatcher_join_seconds_bucket{{{JOIN},le="10.0"}}': ("+1000", "+900"),
         f"photon_dispatcher_join_seconds_count{{{JOIN}}}": ("+1000", "+1000")}, JOIN,
    ),
    Case(
        "PhotonWastedJoins", 2600, 995,
        {f"photon_dispatcher_wasted_joins_total{{{JOIN}}}": ("+1", "+10"),
         f'photon_dispatcher_events_total{{{JOIN},verdict="joined"}}': ("+99", "+90")}, JOIN,
    ),
    Case("PhotonRetimed", 60, 3595, {f"photon_dispatcher_retimed_total{{{JOIN}}}": ("+0", "+1")}, JOIN),
    Case(
        "PhotonCacheCold", 2880, 715,
        {f"photon_eventstore_cache_hits_total{{{JOIN}}}": ("+95", "+70"),
         f"photon_eventstore_cache_misses_total{{{JOIN}}}": ("+5", "+30")}, JOIN,
    ),
    Case("PhotonPrimaryLogMissing", 600, 0, {f"photon_eventstore_missing_logs{{{JOIN}}}": ("0", "1")}, JOIN),
    Case("PhotonComputingStopped", 300, 0, {f"photon_computing_running{{{COMPUTE}}}": ("1", "0")}, 'process="spend"'),
    Case(  # its process is away
        "PhotonComputingStopped", 300, 0,
        {f"photon_computing_running{{{COMPUTE}}}": ("1", "_"), f"photon_up{{{COMPUTE}}}": ("1", "0")},
        'process="spend"',
    ),
    Case("PhotonComputingAlarm", 300, 0, {f"photon_computing_alarms{{{COMPUTE}}}": ("0", "1")}, 'process="spend"'),
    Case(
        "PhotonSinkStalled", 360, 0,
        {'photon_sink_stalled_seconds{datacentre="east",service="sink",process="lake"}': ("0", "0+5")},
        'datacentre="east",process="lake"',
    ),
    Case(
        "PhotonDiskFilling", 300, 0,
        {f'photon_disk_free_bytes{{{PROCESS},directory="state"}}': ("6000000000", "4000000000")},
        f'{PROCESS},directory="state"',
    ),
    Case(
        "PhotonOpenFiles", 300, 0,
        {f"process_open_fds{{{PROCESS}}}": ("700", "900"), f"process_max_fds{{{PROCESS}}}": ("1000", "1000")},
        PROCESS,
    ),
    Case("PhotonOracleWithoutLeader", 60, 0, {f"photon_oracle_leader{{{R1}}}": ("1", "0")}, ""),
    Case("PhotonTablesStoreSilent", 60, 0, {f"photon_tables_store_up{{{TABLES}}}": ("1", "0")}, 'process="dedup-1"'),
    Case("PhotonTablesDirty", 60, 0, {f"photon_tables_oldest_dirty_seconds{{{TABLES}}}": ("200", "400")}, ""),
    Case(
        "PhotonTablesSafePoint", 60, 0, {f"photon_tables_safe_point_age_seconds{{{TABLES}}}": ("80000", "90000")}, "",
    ),
]  # fmt: skip
