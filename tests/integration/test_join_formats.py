"""`photon join` on logs of formats that are more than lines: killed in the middle, rolled, compressed with zstd."""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from photon.lab.demo.check import records
from tests.integration.commands import photon
from tests.integration.join_logs import Logs
from tests.unit.adapters.messages import delimited, descriptor_set, event_class

PRIMARIES = 300
Event = event_class(descriptor_set())
EPOCH = 1_760_000_000
Row = tuple[str, str, int, str]  # id, key, seconds, text


def zeek(rows: Sequence[Row], part: int) -> bytes:
    """Each part has its header; the second part has its columns in another order."""
    names = ["ts", "uid", "id", "text"] if part % 2 else ["text", "id", "uid", "ts"]
    head = f"#separator \\x09\n#set_separator\t,\n#open\t{part}\n#fields\t" + "\t".join(names) + "\n"
    lines = [
        {"ts": f"{at}.000000", "uid": key, "id": own, "text": text.replace("\n", "\\x0a")}
        for own, key, at, text in rows
    ]
    return (head + "".join("\t".join(line[name] for name in names) + "\n" for line in lines)).encode()


def logfmt(rows: Sequence[Row], part: int) -> bytes:
    return "".join(
        f"ts={at} id={own} uid={key} text={json.dumps(text)} flag\n" for own, key, at, text in rows
    ).encode()


def quoted(rows: Sequence[Row], part: int) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([(at, own, key, text) for own, key, at, text in rows])
    return out.getvalue().encode()


def messages(rows: Sequence[Row], part: int) -> bytes:
    return delimited(
        Event(key={"name": key}, text=own, number=at, raw=text.encode()).SerializeToString()
        for own, key, at, text in rows
    )


def container(rows: Sequence[Row], part: int) -> bytes:
    """Every other record is on stderr, and its parts are between those of the one before."""
    at = "2025-10-09T08:53:20.123456789Z"
    out = []
    for place in range(0, len(rows), 2):
        pair = [
            json.dumps({"ts": ts, "id": own, "uid": key, "text": text}) for own, key, ts, text in rows[place:][:2]
        ]
        for tag, piece in (("P", slice(20)), ("P:x", slice(20, 30)), ("F", slice(30, None))):
            streams = zip(("stdout", "stderr"), pair, strict=False)
            out += [f"{at} {stream} {tag} {line[piece]}\n" for stream, line in streams]
    return "".join(out).encode()


@dataclass(frozen=True)
class Kind:
    """How one format is written and configured, and where its text is in the payload."""

    write: Callable[[Sequence[Row], int], bytes]
    side: dict[str, Any]
    foreign: dict[str, Any]
    text: Callable[[dict[str, Any]], str] = lambda payload: str(payload["text"])


def from_base64(payload: dict[str, Any]) -> str:
    import base64

    return base64.b64decode(payload["raw"]).decode()


SECONDS = {"field": "ts", "unit": "s"}
KINDS = {
    "zeek": Kind(zeek, {"format": "zeek", "key": "uid"}, {"id": "id"}),
    "logfmt": Kind(logfmt, {"format": "logfmt", "key": "uid"}, {"id": "id", "time": SECONDS}),
    "cri": Kind(container, {"format": "jsonl", "key": "uid", "framing": "cri"}, {"id": "id", "time": SECONDS}),
    "csv": Kind(
        quoted,
        {"format": "csv", "key": "uid", "multiline": True, "columns": ["ts", "id", "uid", "text"]},
        {"id": "id", "time": SECONDS},
    ),
    "protobuf": Kind(
        messages,
        {"format": "protobuf", "descriptor": "event.pb", "message": "test.Event", "key": "key.name"},
        {"id": "text", "time": {"field": "number", "unit": "s"}},
        from_base64,
    ),
}


def toml(tables: dict[str, Any]) -> str:
    lines = []
    for name, value in tables.items():
        inner = ", ".join(f"{key} = {json.dumps(each)}" for key, each in value.items()) if type(value) is dict else ""
        lines.append(f"{name} = {{ {inner} }}" if inner else f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def rows_of(side: str, begin: int, end: int) -> list[Row]:
    return [
        (f"{side}{n}", f"q{n}", EPOCH + n, f'{side} "{n}"\nsecond, line' if n % 3 else f"{side}{n}")
        for n in range(begin, end)
    ]


class Site(Logs):
    def __init__(self, base: Path, kind: Kind) -> None:
        super().__init__(base, clicks=1)
        (base / "event.pb").write_bytes(descriptor_set())
        self.kind = kind
        sides = {"primary": kind.side, "foreign": {**kind.side, **kind.foreign}}
        self.config.write_text("".join(f"[join.x.{name}]\n{toml(side)}" for name, side in sides.items()))

    def append(self, side: Path, rows: Sequence[Row], part: int) -> None:
        with (side / "events.log").open("ab") as log:
            log.write(self.kind.write(rows, part))

    def ids(self) -> Counter[str]:
        return Counter(str(record["event_id"]) for record in records(self.output / "joined"))


@pytest.mark.parametrize("name", KINDS)
def test_each_event_once_with_its_primary(tmp_path: Path, name: str) -> None:
    site = Site(tmp_path, KINDS[name])
    half = PRIMARIES // 2
    site.append(site.primary, rows_of("p", 0, half), 0)
    site.append(site.foreign, rows_of("f", 0, half // 2), 0)
    with site.following() as running:
        deadline = time.monotonic() + 60
        while len(site.ids()) < half // 2:
            assert time.monotonic() < deadline, running.err.read_text()
            time.sleep(0.02)
        site.append(site.primary, rows_of("p", half, half + 20), 1)
        running.kill()
    # Rolled and compressed unobserved; events of the first half come only now, so they are looked up there.
    for side in (site.primary, site.foreign):
        data = (side / "events.log").read_bytes()
        (side / "events.log.1.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
        (side / "events.log").unlink()
    site.append(site.primary, rows_of("p", half + 20, PRIMARIES), 2)
    site.append(site.primary, [("last", "other", EPOCH, "x")], 3)
    site.append(site.foreign, rows_of("f", half // 2, PRIMARIES), 1)
    result = site.once()
    assert result.code == 0, result.err
    assert site.ids() == Counter(f"f{n}" for n in range(PRIMARIES))
    texts = {(side, n): text for side in "pf" for n, (_, _, _, text) in enumerate(rows_of(side, 0, PRIMARIES))}
    for record in records(site.output / "joined"):
        n = int(str(record["event_id"])[1:])
        assert record["key"] == f"q{n}"
        assert record["event_time_ns"] == (EPOCH + n) * 10**9
        assert site.kind.text(record["primary"]) == texts["p", n]
        assert site.kind.text(record["foreign"]) == texts["f", n]
    ledger = result.json
    assert (ledger["joined"], ledger["pending"], ledger["rejected"], ledger["unmatched"]) == (PRIMARIES, 0, 0, 0)


def test_a_torn_message_at_the_end_is_named_and_nothing_is_unmatched_for_it(tmp_path: Path) -> None:
    site = Site(tmp_path, KINDS["protobuf"])
    site.append(site.primary, rows_of("p", 0, 5), 0)
    site.append(site.foreign, rows_of("f", 0, 6), 0)
    with (site.primary / "events.log").open("ab") as log:
        log.write(messages(rows_of("p", 5, 6), 0)[:-3])
    result = site.once()
    assert result.code == 3
    assert "events.log: the last line, at offset " in result.err
    assert (result.json["unmatched"], result.json["pending"]) == (0, 1)
    with (site.primary / "events.log").open("ab") as log:
        log.write(messages(rows_of("p", 5, 6), 0)[-3:])
    assert site.once().code == 0
    assert site.ids() == Counter(f"f{n}" for n in range(6))


def test_logs_of_zeek_and_logfmt_need_no_configuration(tmp_path: Path) -> None:
    site = Site(tmp_path, KINDS["zeek"])
    site.append(site.primary, rows_of("p", 0, 50), 0)
    with (site.foreign / "click.log").open("wb") as log:
        log.write(logfmt(rows_of("f", 0, 50)[::-1], 0).replace(b" id=", b" click_id="))
    result = photon(*site.arguments("--once", "-o", "json", "--id", "click_id", config=False))
    assert result.code == 0, (
        result.err
    )  # its values are numbered without gaps, so it is not taken for an id automatically
    assert site.ids() == Counter(f"f{n}" for n in range(50))
