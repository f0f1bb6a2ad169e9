"""The worked examples of config/examples, on lines in the form of these logs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import orjson

from photon.adapters.contract import Joined
from photon.adapters.join_adapters import adapter_of
from photon.adapters.testkit import Samples, check_adapter
from photon.adapters.testkit.answers import pairs
from photon.adapters.testkit.trial import try_file
from photon.config.loader import convert

EXAMPLES = Path(__file__).parents[3] / "config" / "examples"

EVE = [
    '{"timestamp":"2021-01-27T00:25:38.505104+0000","flow_id":1805461738637437,"event_type":"dns","src_ip":"10.1.1.9"}',
    '{"timestamp":"2021-01-27T00:25:39.105104+0000","flow_id":1805461738637437,"in_iface":"eth0","event_type":"alert",'
    '"src_ip":"10.1.1.9","alert":{"action":"allowed","signature_id":2013028,"severity":2}}',
    '{"timestamp":"2021-01-27T00:25:40.105104+0000","flow_id":1805461738637437,"event_type":"alert",'
    '"src_ip":"10.1.1.9","alert":{"action":"allowed","signature_id":2100498,"severity":2}}',
    '{"timestamp":"2021-01-27T00:30:01.000001+0000","event_type":"stats","stats":{"uptime":300}}',
    '{"timestamp":"2021-01-27T00:26:40.105104+0000","flow_id":1805461738637437,"event_type":"flow",'
    '"src_ip":"10.1.1.9","flow":{"pkts_toserver":5,"bytes_toclient":1026}}',
    '{"timestamp":"2021-01-27T00:26:41.105104+0000","flow_id":99,"event_type":"flow","flow":{"pkts_toserver":1}}',
]
ACCESS = [
    '10.2.8.149 - - [20/Nov/2026:09:36:01 +0100] "GET /health HTTP/1.1" 200 2 "-" "kube-probe/1.29"',
    '10.2.8.149 - ann [20/Nov/2026:09:36:02 +0100] "POST /pay?order=SO%2F17&s=2 HTTP/1.1" 500 6588 "-" "Mozilla/5.0"',
    '10.2.8.150 - - [20/Nov/2026:09:36:03 +0100] "GET /pay?order=SO%2F18 HTTP/1.1" 200 65 "-" "curl/8.5.0"',
]
ERRORS = [
    '{"time":"2026-11-20T08:36:02.376Z","level":"error","event_id":"E1","order_id":"SO/17","text":"card declined"}',
    '{"time":"2026-11-20T08:36:02.412Z","level":"error","event_id":"E2","order_id":"SO/17","text":"rolled back"}',
]


def joined(tmp_path: Path, example: str, primary: list[str], foreign: list[str]) -> list[tuple[Any, Any]]:
    """The payloads of all pairs, after the checks of ``photon adapter test``."""
    settings = convert(tomllib.loads((EXAMPLES / f"{example}.toml").read_text()), example)
    adapter = adapter_of(settings, next(iter(settings.join)), EXAMPLES)
    samples = []
    for side, lines in (("primary", primary), ("foreign", foreign)):
        (tmp_path / side).write_text("".join(line + "\n" for line in lines))
        trial = try_file(adapter, side, tmp_path / side)
        assert (trial.rejected, trial.fault) == ([], "")
        read = {each.offset for each in trial.read}
        samples.append([each for each in trial.samples if each.offset in read])
    check_adapter(adapter, Samples(*samples))
    found = [adapter.join(f.record, f.file, p.record, p.file) for f, p in pairs(adapter, Samples(*samples))]
    assert all(isinstance(each, Joined) for each in found)
    return [tuple(map(orjson.loads, each)) for each in found]  # type: ignore[arg-type, misc]


def test_suricata_alerts_with_their_flows(tmp_path: Path) -> None:
    found = joined(tmp_path, "suricata", EVE, EVE)
    assert [(alert["alert"]["signature_id"], flow["event_type"]) for alert, flow in found] == [
        (2013028, "flow"), (2100498, "flow"),
    ]  # fmt: skip
    assert {flow["flow"]["bytes_toclient"] for _, flow in found} == {1026}


def test_errors_of_an_application_with_nginx_requests(tmp_path: Path) -> None:
    found = joined(tmp_path, "nginx", ACCESS, ERRORS)
    assert [(error["event_id"], request["user"]) for error, request in found] == [("E1", "ann"), ("E2", "ann")]
