"""`photon adapter test` and `photon join` with config/examples, on lines in the form of these logs."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from photon.lab.demo.check import records
from tests.integration.commands import photon

PACK = {".gz": gzip.compress, ".zstd": zstandard.compress}
EXAMPLES = Path(__file__).parents[2] / "config" / "examples"
Lines = Sequence[str | dict[str, Any]]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Worked:
    """``pairs``: what ``of`` a joined record gives, for each pair. ``unmatched``: how many events have no primary."""

    name: str
    primary: Lines
    foreign: Lines | None  # ``None``: the same log
    of: Callable[[Record, Record], tuple[Any, ...]]
    pairs: list[tuple[Any, ...]]
    unmatched: int = 0
    file: str = "a.log"  # of the primary log


def _alb(trace: str, order: str, behind: str = "") -> str:
    return (
        "https 2026-11-20T09:36:02.376123Z app/shop/50dc6c495c0c9188 192.0.2.10:2817 10.0.0.1:8080 0.000 0.048 0.037 "
        f'500 500 257 57 "POST https://shop.example:443/pay?order={order} HTTP/1.1" "curl/8.5.0" '
        "ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 "
        "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/shop/73e2d6bc24d8a067 "
        f'"{trace}" "shop.example" "arn:aws:acm:eu-west-1:123456789012:certificate/1234" 1 2026-11-20T09:36:02.29Z '
        f'"forward" "-" "-" "10.0.0.1:8080" "500" "-" "-" TID_1234abcd5678ef90{behind}'
    )


def _trail(event: str, request: str | None) -> Record:
    source = {"eventVersion": "1.09", "eventTime": "2026-11-20T09:36:02Z", "eventSource": "s3.amazonaws.com"}
    return {**source, "eventName": event, "requestID": request, "eventID": f"e-{event}", "eventType": "AwsApiCall"}


def _audit(stage: str, audit: str, second: int, **more: Any) -> Record:
    at = f"2026-11-20T09:36:{second:02d}.376000Z"
    head = {"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": audit, "stage": stage}
    about = {"requestURI": "/api/v1/namespaces/shop/pods", "verb": "create", "user": {"username": "ann"}}
    return {**head, **about, "requestReceivedTimestamp": "2026-11-20T09:36:00.376000Z", "stageTimestamp": at, **more}


def _change(op: str, at_ms: int, after: Record | None, before: Record | None = None) -> Record:
    source = {"version": "3.0.0", "connector": "postgresql", "name": "shop", "ts_ms": at_ms, "snapshot": "false"}
    payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": at_ms + 40, "transaction": None}
    return {"schema": {"type": "struct", "fields": [], "name": "shop.public.Envelope"}, "payload": payload}


def _stage(stage: int, attempt: int, name: str) -> Record:
    info = {"Stage ID": stage, "Stage Attempt ID": attempt, "Stage Name": name, "Submission Time": 1795167360000}
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": {}}


def _task(event: str, task: int, stage: int, attempt: int) -> Record:
    info = {"Task ID": task, "Index": 0, "Launch Time": 1795167361000, "Finish Time": 1795167362000 + task}
    return {"Event": event, "Stage ID": stage, "Stage Attempt ID": attempt, "Task Info": info}


REQ, USER, PROJECT = "req-38101a0b-2096-447d-96ea-a692162415ae", "113d3a99c3da401f", "54fadb412c4e40cd"
OTHER = "req-9bc36dd9-91c5-4314-898a-47625eb93b09"
INSTANCE = "b9000564-fe1a-409b-b8cc-1e88b294cd1d"
NOVA, LOGGED = "2026-11-20 09:36:0", "ERROR nova.compute.manager"
ROOT = "Root=1-58337262-36d228ad5d99923122bbe354"
BLOCKS = "INFO org.apache.hadoop.hdfs.StateChange: BLOCK*"
TRACE = "INFO org.apache.hadoop.hdfs.server.datanode.DataNode.clienttrace: src: /10.0.0.6:41236, dest: /10.0.0."
POOL = "offset: 0, srvID: 5f1e-77, blockid: BP-929597290-10.0.0.1-1417026402:"

WORKED = [
    Worked(
        "suricata",
        [
            '{"timestamp":"2021-01-27T00:25:38.505104+0000","flow_id":1805461738637437,"event_type":"dns"}',
            '{"timestamp":"2021-01-27T00:25:39.105104+0000","flow_id":1805461738637437,"in_iface":"eth0",'
            '"event_type":"alert","src_ip":"10.1.1.9","alert":{"action":"allowed","signature_id":2013028}}',
            '{"timestamp":"2021-01-27T00:25:40.105104+0000","flow_id":1805461738637437,"event_type":"alert",'
            '"src_ip":"10.1.1.9","alert":{"action":"allowed","signature_id":2100498}}',
            '{"timestamp":"2021-01-27T00:30:01.000001+0000","event_type":"stats","stats":{"uptime":300}}',
            '{"timestamp":"2021-01-27T00:26:40.105104+0000","flow_id":1805461738637437,"event_type":"flow",'
            '"src_ip":"10.1.1.9","flow":{"pkts_toserver":5,"bytes_toclient":1026}}',
            '{"timestamp":"2021-01-27T00:26:41.105104+0000","flow_id":99,"event_type":"flow","flow":{}}',
        ],
        None,
        lambda alert, flow: (alert["alert"]["signature_id"], flow["flow"]["bytes_toclient"]),
        [(2013028, 1026), (2100498, 1026)],
    ),
    Worked(
        "nginx",
        [
            '10.2.8.149 - - [20/Nov/2026:09:36:01 +0100] "GET /health HTTP/1.1" 200 2 "-" "kube-probe/1.29"',
            '10.2.8.149 - ann [20/Nov/2026:09:36:02 +0100] "POST /pay?order=SO%2F17&s=2 HTTP/1.1" 500 6588 "-" "A/5"',
            '10.2.8.150 - - [20/Nov/2026:09:36:03 +0100] "GET /pay?order=SO%2F18 HTTP/1.1" 200 65 "-" "curl/8.5.0"',
        ],
        [
            '{"time":"2026-11-20T08:36:02.376Z","level":"error","event_id":"E1","order_id":"SO/17","text":"declined"}',
            '{"time":"2026-11-20T08:36:02.412Z","level":"error","event_id":"E2","order_id":"SO/17","text":"undone"}',
        ],
        lambda error, request: (error["event_id"], request["user"]),
        [("E1", "ann"), ("E2", "ann")],
    ),
    Worked(
        "alb",
        [_alb(ROOT, "17"), _alb("-", "18"), _alb("Root=1-58337262-ffff", "19", ' "-" "-" -')],
        [
            {"time": "2026-11-20T09:36:02.4Z", "event_id": "E1", "trace": ROOT},
            {"time": "2026-11-20T09:36:02.5Z", "event_id": "E2", "trace": f"Self=1-58337262-0a0a;{ROOT};From=app"},
            {"time": "2026-11-20T09:36:02.6Z", "event_id": "E3", "trace": "Root=1-58337262-0000"},
        ],
        lambda error, request: (error["event_id"], request["request"].split("order=")[1][:2]),
        [("E1", "17"), ("E2", "17")],
        unmatched=1,
    ),
    Worked(
        "cloudtrail",
        [{"Records": [_trail("PutObject", "4XR9"), _trail("ConsoleLogin", None), _trail("GetObject", "7TB2")]}],
        [
            {"time": "2026-11-20T09:36:02.1Z", "call_id": "c1", "aws_request_id": "7TB2"},
            {"time": "2026-11-20T09:36:02.2Z", "call_id": "c2", "aws_request_id": "4XR9"},
        ],
        lambda call, event: (call["call_id"], event["eventName"]),
        [("c1", "GetObject"), ("c2", "PutObject")],
        file="CloudTrail/123456789012_CloudTrail_eu-west-1_20261120T0940Z_Ab3.json.gz",
    ),
    Worked(
        "kubernetes_audit",
        [
            _audit("RequestReceived", "77e58433", 0, sourceIPs=["10.0.0.1"]),
            _audit("RequestReceived", "0ae79d4b", 1, sourceIPs=["10.0.0.2"]),
            _audit("ResponseStarted", "0ae79d4b", 1),
            _audit("ResponseComplete", "77e58433", 2, responseStatus={"metadata": {}, "code": 201}),
            _audit("Panic", "0ae79d4b", 3, responseStatus={"metadata": {}, "code": 500}),
        ],
        None,
        lambda done, received: (done["auditID"], done["responseStatus"]["code"], received["sourceIPs"]),
        [("77e58433", 201, ["10.0.0.1"]), ("0ae79d4b", 500, ["10.0.0.2"])],
    ),
    Worked(
        "postfix",
        [
            "Dec 31 23:59:01 mx postfix/smtpd[811]: connect from host.example[192.0.2.9]",
            "Dec 31 23:59:01 mx postfix/smtpd[811]: 4E1A2B: client=host.example[192.0.2.9]",
            "Dec 31 23:59:01 mx postfix/cleanup[812]: 4E1A2B: message-id=<1@host.example>",
            "Dec 31 23:59:02 mx postfix/qmgr[799]: 4E1A2B: from=<ann@host.example>, size=248, nrcpt=2 (queue active)",
            "Dec 31 23:59:03 mx postfix/smtp[813]: 4E1A2B: to=<bob@a.example>, relay=mx.a.example[192.0.2.1]:25, "
            "delay=2, delays=0.1/0/0.9/1, dsn=2.0.0, status=sent (250 2.0.0 Ok: queued as 77F)",
            "Dec 31 23:59:04 mx postfix/smtp[814]: 4E1A2B: to=<eve@b.example>, orig_to=<eve@old.example>, "
            "relay=none, delay=3, delays=0.1/0/3/0, dsn=4.4.1, status=deferred (connect to b.example: timed out)",
            "Jan  1 00:09:04 mx postfix/qmgr[799]: 4E1A2B: from=<ann@host.example>, size=248, nrcpt=2 (queue active)",
            "Jan  1 00:09:05 mx postfix/smtp[820]: 4E1A2B: to=<eve@b.example>, relay=mx.b.example[192.0.2.2]:25, "
            "delay=603, delays=602/0/0.5/0.5, dsn=2.0.0, status=sent (250 2.0.0 Ok)",
            "Jan  1 00:09:05 mx postfix/qmgr[799]: 4E1A2B: removed",
            "Jan  1 08:00:00 mx postfix/qmgr[799]: 4E1A2B: from=<>, size=99, nrcpt=1 (queue active)",
            "Jan  1 08:00:01 mx postfix/local[830]: 4E1A2B: to=<ann@host.example>, relay=local, delay=1, "
            "delays=0/0/0/1, dsn=2.0.0, status=sent (delivered to mailbox)",
        ],
        None,
        lambda sent, queued: (sent["recipient"], sent["status"], queued["sender"], queued["at"]),
        [
            ("bob@a.example", "sent", "ann@host.example", "Dec 31 23:59:02"),
            ("eve@b.example", "deferred", "ann@host.example", "Dec 31 23:59:02"),
            ("eve@b.example", "sent", "ann@host.example", "Jan  1 00:09:04"),
            ("ann@host.example", "sent", "", "Jan  1 08:00:00"),
        ],
    ),
    Worked(
        "nova",
        [
            f"{NOVA}0.001 2574 INFO nova.api.openstack.wsgi [None {REQ} {USER} {PROJECT} - - default default] No key",
            f"{NOVA}0.376 2574 INFO nova.osapi_compute.wsgi.server [None {REQ} {USER} {PROJECT} - - default default] "
            f'10.0.0.1 "POST /v2.1/{PROJECT}/servers HTTP/1.1" status: 202 len: 733 time: 0.4895661',
            f"{NOVA}0.976 2574 INFO nova.osapi_compute.wsgi.server [{OTHER} {USER} {PROJECT} - - -] "
            f'10.0.0.2 "GET /v2/{PROJECT}/servers/detail HTTP/1.1" status: 200 len: 1893 time: 0.2477829',
        ],
        [
            f"{NOVA}1.120 2931 INFO nova.compute.claims [None {REQ} {USER} {PROJECT} - - default default] "
            f"[instance: {INSTANCE}] Claim successful",
            f"{NOVA}2.376 2931 {LOGGED} [None {REQ} {USER} {PROJECT} - - default default] [instance: {INSTANCE}] "
            "Instance failed to spawn: nova.exception.ImageUnacceptable",
            f"{NOVA}2.376 2931 {LOGGED} [instance: {INSTANCE}] Traceback (most recent call last):",
            f'{NOVA}2.376 2931 {LOGGED} [instance: {INSTANCE}]   File "manager.py", line 2743, in _build_resources',
            f"{NOVA}3.001 2931 WARNING nova.virt.libvirt.imagecache [-] Unknown base file",
            f"{NOVA}3.501 2931 WARNING nova.compute.manager [{OTHER} {USER} {PROJECT} - - -] While synchronizing",
        ],
        lambda fault, request: (fault["level"], fault["text"].count("\n"), request["client"], request["call"][:4]),
        [("ERROR", 2, "10.0.0.1", "POST"), ("WARNING", 0, "10.0.0.2", "GET ")],
    ),
    Worked(
        "hdfs",
        [
            f"2026-11-20 09:36:00,115 {BLOCKS} allocate blk_1073741825_1001, replicas=10.0.0.6:9866, 10.0.0.7:9866 "
            "for /user/ann/a b.csv._COPYING_",
            "2026-11-20 09:36:00,220 WARN org.apache.hadoop.security.Groups: no groups",
            "java.io.IOException: No groups found",
            "\tat org.apache.hadoop.security.Groups.noGroups(Groups.java:225)",
            f"2026-11-20 09:36:01,115 {BLOCKS} allocate blk_-1608999687919862906_1002, replicas=10.0.0.6:9866 "
            "for /tmp/b",
            f"2026-11-20 09:36:01,300 {BLOCKS} blk_1073741825_1001 is COMMITTED but not COMPLETE",
        ],
        [
            f"2026-11-20 09:36:01,812 {TRACE}6:9866, bytes: 134217728, op: HDFS_WRITE, "
            f"cliID: DFSClient_NONMAPREDUCE_-20_1, {POOL}blk_1073741825_1001, duration(ns): 3562813",
            f"2026-11-20 09:36:01,830 {TRACE}7:9866, volume: /data/1, bytes: 134217728, op: HDFS_WRITE, "
            f"cliID: DFSClient_1, {POOL}blk_1073741825_1003, duration(ns): 3562999",
            "2026-11-20 09:36:01,850 INFO org.apache.hadoop.hdfs.server.datanode.DataNode: PacketResponder: "
            "BP-929597290-10.0.0.1-1417026402:blk_1073741825_1001, type=LAST_IN_PIPELINE terminating",
            f"2026-11-20 09:36:02,001 {TRACE}6:9866, bytes: 77, op: HDFS_READ, cliID: DFSClient_1, "
            f"{POOL}blk_1073741825_1001, duration(ns): 1",
            f"2026-11-20 09:36:02,101 {TRACE}6:9866, bytes: 12, op: HDFS_WRITE, cliID: DFSClient_1, "
            f"{POOL}blk_-1608999687919862906_1002, duration(ns): 1",
        ],
        lambda write, block: (write["to"], write["bytes"], block["path"]),
        [
            ("10.0.0.6:9866", "134217728", "/user/ann/a b.csv._COPYING_"),
            ("10.0.0.7:9866", "134217728", "/user/ann/a b.csv._COPYING_"),
            ("10.0.0.6:9866", "12", "/tmp/b"),
        ],
    ),
    Worked(
        "spark_events",
        [
            {"Event": "SparkListenerLogStart", "Spark Version": "4.0.1"},
            {"Event": "SparkListenerApplicationStart", "App Name": "nightly", "App ID": "app-1", "Timestamp": 1},
            _stage(0, 0, "count at a.py:1"),
            _task("SparkListenerTaskStart", 0, 0, 0),
            _task("SparkListenerTaskEnd", 0, 0, 0),
            _stage(0, 1, "count at a.py:1, again"),
            _task("SparkListenerTaskEnd", 1, 0, 1),
            _task("SparkListenerTaskEnd", 2, 1, 0),  # its stage is in an earlier log, for instance
        ],
        None,
        lambda task, stage: (task["Task Info"]["Task ID"], stage["Stage Info"]["Stage Name"]),
        [(0, "count at a.py:1"), (1, "count at a.py:1, again")],
        unmatched=1,
        file="app-1.zstd",
    ),
    Worked(
        "debezium",
        [
            _change("r", 1795167360000, {"id": 17, "state": "open"}),
            _change("u", 1795167370000, {"id": 17, "state": "packed"}, {"id": 17, "state": "open"}),
            _change("d", 1795167390000, None, {"id": 17, "state": "packed"}),
        ],
        [
            _change("c", 1795167361000, {"id": "p1", "order_id": 17, "cents": 500}),
            _change("u", 1795167362000, {"id": "p1", "order_id": 17, "cents": 501}, {"id": "p1"}),
            _change("c", 1795167371000, {"id": "p2", "order_id": 17, "cents": 700}),
            _change("c", 1795167371000, {"id": "p2", "order_id": 17, "cents": 700}),
        ],
        lambda payment, order: (payment["payment"]["id"], payment["payment"]["cents"], order["order"]["state"]),
        [("p1", 500, "open"), ("p2", 700, "packed")],
    ),
]


def _written(file: Path, lines: Lines) -> Path:
    file.parent.mkdir(parents=True)
    text = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines).encode()
    file.write_bytes(PACK.get(file.suffix, bytes)(text))
    os.utime(file, (1_790_000_000, 1_790_000_000))  # lines that belong together end once nobody writes
    return file


@pytest.mark.parametrize("worked", WORKED, ids=lambda worked: worked.name)
def test_an_example_joins_its_logs(tmp_path: Path, worked: Worked) -> None:
    config = EXAMPLES / f"{worked.name}.toml"
    primary = _written(tmp_path / "primary" / worked.file, worked.primary)
    foreign = primary if worked.foreign is None else _written(tmp_path / "foreign" / "b.log", worked.foreign)
    tried = photon("adapter", "test", config, "--primary", primary, "--foreign", foreign)
    assert tried.code == 0, tried.out + tried.err  # every record is read, and the contract holds
    output = tmp_path / "out"
    logs = [tmp_path / "primary", tmp_path / ("foreign" if worked.foreign else "primary")]
    result = photon(
        "join", "--primary", logs[0], "--foreign", logs[1], "--output", output, "--config", config, "--once",
        "-o", "json",
    )  # fmt: skip
    assert result.code == 0, result.err
    found = [worked.of(each["foreign"], each["primary"]) for each in records(output / "joined")]
    assert sorted(found) == sorted(worked.pairs)
    assert {name: count for name, count in result.json.items() if name in ("joined", "rejected", "ambiguous")} == {
        "joined": len(worked.pairs), "rejected": 0, "ambiguous": 0,
    }  # fmt: skip
    assert result.json["unmatched"] == worked.unmatched


def test_stages_of_two_applications_in_one_directory_are_refused(tmp_path: Path) -> None:
    for name in ("app-1", "app-2"):
        _written(tmp_path / "logs" / name / "log", [_stage(0, 0, name), _task("SparkListenerTaskEnd", 0, 0, 0)])
    result = photon(
        "join", "--primary", tmp_path / "logs", "--foreign", tmp_path / "logs", "--output", tmp_path / "out",
        "--config", EXAMPLES / "spark_events.toml", "--once", "-o", "json",
    )  # fmt: skip
    assert (result.json["joined"], result.json["rejected"]) == (0, 2)
