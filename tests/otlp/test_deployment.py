"""A deployment and its collector: traces over all rooms, metrics of the status page, log lines; and none there."""

from __future__ import annotations

import re
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from photon.supervision.ports import free_ports
from tests.integration.commands import photon, until
from tests.integration.verified_site import Site, site_in
from tests.otlp.collector import Collector, Span

EVENTS, MISSING, MORE = 300, 5, 50
REPLICAS = 3
PROCESSES = 5 + REPLICAS
WAIT_S = 60.0
PAGE = Path(__file__).parents[2] / "docs/opentelemetry.md"
PARENTS = {
    "joiner.join": "dispatcher.batch",
    "joiner.look_up": "joiner.join",
    "eventstore.look_up": "joiner.look_up",
    "joiner.redo_log": "joiner.join",
    "joiner.register": "joiner.join",
    "registry.insert": "joiner.register",
    "joiner.write": "joiner.join",
}
CACHE = {"cache.find": "eventstore.look_up"}
# Of these the next reading is another.
MOVING = (
    "process_", "photon_up", "photon_status_", "photon_clock_", "photon_disk_", "_age_seconds",
    "_lag_seconds", "_oldest_",
    "photon_registry_commit_", "photon_eventstore_cache_", "photon_eventstore_log_", "photon_registry_applied_",
    "photon_dispatcher_look_ups", "photon_verifier_", "photon_watermark_", "photon_cache_",
)  # fmt: skip


def prepared(site_file: Path, collector: Collector, *, cache: bool, together: bool) -> str:
    """Adds the documentation's table, sooner and for all batches, and a status page, whose address it is."""
    page, node = (f"127.0.0.1:{port}" for port in free_ports(2))
    (table,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    for shown, wanted in (("http://127.0.0.1:4318", collector.endpoint), ("0.01", "1.0"), ("15s", "1s")):
        assert shown in table
        table = table.replace(shown, wanted)
    text = site_file.read_text() + table
    own = f'state = "state"\n{"" if together else "apart."}status = "{page}"\n' + f'apart.cache = "{node}"\n' * cache
    if together:
        text = re.sub(r"^apart\..*\n", "", text, flags=re.M)
        own += f'address = "127.0.0.1:{free_ports(1)[0]}"\n'
    site_file.write_text(text.replace('state = "state"\n', own, 1))
    checked = photon("doctor", "config", "--config", site_file)
    assert checked.code == 0, checked.err
    return page


def chains(spans: list[Span]) -> Counter[tuple[str, str]]:
    """(name, name of its parent), over all traces; a parent is a span of the same trace."""
    by_id = {(each.trace, each.id): each for each in spans}
    return Counter(
        (each.name, by_id[each.trace, each.parent].name if each.parent else "")
        for each in spans
        if not each.parent or (each.trace, each.parent) in by_id
    )


def drawn(spans: list[Span]) -> list[str]:
    """The traces as the documentation shows one: names in the order of their start, below their parents."""

    def below(trace: str, parent: str, depth: int) -> Iterator[str]:
        for each in sorted(spans, key=lambda span: span.start_ns):
            if (each.trace, each.parent) == (trace, parent):
                yield "  " * depth + each.name + "\n"
                yield from below(trace, each.id, depth + 1)

    return ["".join(below(trace, "", 0)) for trace in {each.trace for each in spans}]


def check_one_click(site: Site, collector: Collector) -> int:
    """Writes a click at a time until one is traced as the documentation shows: joined in its first attempt, from the
    cache node. Returns how many it wrote."""
    (shown,) = re.findall(r"^```text\nspan [^\n]*\n(.+?)^```", PAGE.read_text(), re.M | re.S)
    wanted = re.sub(r"(?m)(?<=\S)  .*$", "", shown)
    deadline, written = time.monotonic() + WAIT_S, 0
    while wanted not in (seen := drawn(collector.spans())):
        assert time.monotonic() < deadline, "\n".join(seen)
        if len(site.ids()) == written:
            site.write(1)
            written += 1
        time.sleep(1.0)
    return written


def check_traces(collector: Collector, events: int, parents: Mapping[str, str]) -> list[Span]:
    """Every join of the deployment is in a trace, whole."""

    def joined() -> int:
        roots = [each for each in collector.spans() if each.name == "dispatcher.batch"]
        return sum(int(each.attributes.get("photon.outcome.joined", 0)) for each in roots)

    until(lambda: joined() == events, WAIT_S, "all batches are traced")
    wanted = {("dispatcher.batch", ""), *parents.items()}
    spans: list[Span] = []
    of_trace: dict[str, list[str]] = {}

    def whole() -> bool:
        """Processes send by turns, so that a trace may come without its root."""
        spans[:] = collector.spans()
        of_trace.clear()
        for each in spans:
            of_trace.setdefault(each.trace, []).append(each.name)
        roots = {names.count("dispatcher.batch") for names in of_trace.values()}
        return set(chains(spans)) == wanted and roots == {1}

    until(whole, WAIT_S, "the traces are whole")
    assert any(set(names) >= set(parents) for names in of_trace.values())
    assert sum(each.attributes["photon.keys"] for each in spans if each.name == "eventstore.look_up") >= events
    return spans


def scraped(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    with urllib.request.urlopen(f"http://{page}/metrics", timeout=20) as reply:
        text = reply.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parsed(text)
        for sample in family.samples
        if not any(part in sample.name for part in MOVING) and not sample.name.endswith(("_bucket", "_sum"))
    }


def sent(collector: Collector) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """As Prometheus would have it."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for (name, labels), value in collector.points().items():
        if any(part in name for part in MOVING):
            continue
        if isinstance(value, tuple):
            found[f"{name}_count", labels] = sum(value)
        else:
            found[name, labels] = value
    return found


def check_metrics(collector: Collector, page: str) -> None:
    """Each series of the status page is there, with its value, and no other."""

    def differing() -> set[object]:
        ours, theirs = scraped(page), sent(collector)
        return {(key, ours.get(key), theirs.get(key)) for key in ours.keys() | theirs.keys()
                if ours.get(key) != theirs.get(key)}  # fmt: skip

    try:  # a process that has just begun may be on neither side yet
        until(lambda: not differing() and len(sent(collector)) > 60, WAIT_S, "the metrics are the same")
    except AssertionError:
        print(len(sent(collector)), *sorted(map(str, differing())), sep="\n")
        raise


def logged(site: Site, text: str) -> Counter[str]:
    """How often each process has said it."""
    logs = (site.base / ".photon-run").rglob("*.log")
    return Counter({log.stem: count for log in logs if (count := log.read_text().count(text))})


@pytest.mark.timeout(280)
def test_what_is_sent_and_that_joins_go_on_without_a_collector(tmp_path: Path, collector: Collector) -> None:
    page = ""

    def prepare(base: Path) -> None:
        nonlocal page
        page = prepared(base / "photon.toml", collector, cache=True, together=False)

    with site_in(tmp_path, prepare=prepare, replicas=REPLICAS) as site:
        written = check_one_click(site, collector)
        site.write(EVENTS - written, missing=MISSING)
        until(lambda: len(site.ids()) >= EVENTS, WAIT_S, "all events have their verdicts")
        spans = check_traces(collector, EVENTS - MISSING, PARENTS | CACHE)
        services = {each.name.partition(".")[0]: each.service for each in spans}
        assert services == {
            "dispatcher": "photon-dispatcher", "joiner": "photon-joiner", "eventstore": "photon-eventstore",
            "cache": "photon-cache", "registry": "photon-registry",
        }  # fmt: skip
        assert {each.attributes["photon.slot"] for each in spans if each.name == "joiner.join"} == {"east-1"}
        check_metrics(collector, page)
        opened = [line for line in collector.lines() if line.body == "slot opened"]
        assert [(line.service, line.severity, line.attributes["slot"]) for line in opened] == [
            ("photon-joiner", "info", "east-1")
        ]

        collector.kill()
        site.write(MORE)
        until(lambda: len(site.ids()) >= EVENTS + MORE, WAIT_S, "joins go on")
        away = "telemetry may be dropped"
        until(lambda: len(logged(site, away)) >= PROCESSES, WAIT_S, "each process has said so")

        before = len(collector.spans())
        collector.start()
        site.write(MORE)
        until(lambda: len(collector.spans()) > before, WAIT_S, "traces come again")
        until(lambda: len(site.ids()) == EVENTS + 2 * MORE, WAIT_S, "all is joined")
        check_metrics(collector, page)


@pytest.mark.timeout(280)
def test_a_pipeline_in_one_process_is_traced_alike(tmp_path: Path, collector: Collector) -> None:
    page = ""

    def prepare(base: Path) -> None:
        nonlocal page
        page = prepared(base / "photon.toml", collector, cache=False, together=True)

    with site_in(tmp_path, prepare=prepare, replicas=REPLICAS) as site:
        site.write(EVENTS)
        until(lambda: len(site.ids()) >= EVENTS, WAIT_S, "all events have their verdicts")
        spans = check_traces(collector, EVENTS, PARENTS)
        assert {each.service for each in spans} == {"photon-datacentre", "photon-registry"}
        check_metrics(collector, page)
