"""CPU time for each record of each format: keys of whole blocks, foreign headers, payloads, and what framing costs.

    python -m bench.components.formats

Each figure is the least of ROUNDS process times, in microseconds a record of about 300 bytes; beside it the ratio to
jsonl.
"""

from __future__ import annotations

import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Framing, LogFile
from photon.adapters.logs.follower import Follower
from tests.unit.adapters.messages import delimited, descriptor_set, event_class

RECORDS = 20_000
ROUNDS = 3
FILL = "x" * 180
EPOCH = 1_588_205_198


def rows() -> list[dict[str, str]]:
    return [
        {"ts": f"{EPOCH + n}.899709", "uid": f"Cvf4XX17hSAg{n}", "id": f"F{n}", "orig": "10.0.1.6", "text": FILL}
        for n in range(RECORDS)
    ]


def lines_of(name: str) -> tuple[list[bytes], LogFile]:
    """The records of a format, and their file."""
    fields = rows()
    names = list(fields[0])
    header = b""
    if name in ("jsonl", "zeek-json"):
        lines = [orjson.dumps({**row, "ts": float(row["ts"])}) for row in fields]
    elif name == "logfmt":
        lines = [" ".join(f"{k}={v}" for k, v in row.items()).encode() + b' msg="two words"' for row in fields]
    elif name == "csv":
        lines, header = [",".join(row.values()).encode() for row in fields], ",".join(names).encode()
    elif name == "csv, quoted":
        lines = [",".join(f'"{value}"' for value in row.values()).encode() for row in fields]
        header = ",".join(names).encode()
    elif name == "regex":
        lines = ["\t".join(row.values()).encode() for row in fields]
    elif name == "zeek":
        types = "\t".join("time" if each == "ts" else "string" for each in names)
        lines = ["\t".join(row.values()).encode() for row in fields]
        header = ("#separator \\x09\n#fields\t" + "\t".join(names) + "\n#types\t" + types).encode()
    else:
        lines = [b64encode(message) for message in messages()]
    return lines, LogFile("a.log", header)


def messages() -> list[bytes]:
    event = event_class(descriptor_set())
    return [
        event(
            key={"name": row["uid"]}, text=row["id"], number=EPOCH + n, raw=row["text"].encode()
        ).SerializeToString()
        for n, row in enumerate(rows())
    ]


SECONDS = {"field": "ts", "unit": "s"}
SIDES: dict[str, dict[str, Any]] = {
    "jsonl": {"format": "jsonl"},
    "zeek-json": {"format": "zeek-json"},
    "zeek": {"format": "zeek"},
    "logfmt": {"format": "logfmt"},
    "csv": {"format": "csv"},
    "csv, quoted": {"format": "csv", "multiline": True},
    "regex": {"format": "regex", "pattern": r"(?P<ts>[^\t]+)\t(?P<uid>[^\t]+)\t(?P<id>[^\t]+)\t(?P<rest>.*)"},
    "protobuf": {"format": "protobuf", "descriptor": "event.pb", "message": "test.Event"},
}


def adapter_of(name: str, base: Path) -> ConfiguredAdapter:
    side = {**SIDES[name], "key": "key.name" if name == "protobuf" else "uid"}
    foreign = (
        {**side, "id": "text", "time": {"field": "number", "unit": "s"}}
        if name == "protobuf"
        else {**side, "id": "id"}
    )
    if not name.startswith("zeek"):
        foreign.setdefault("time", SECONDS)
    return ConfiguredAdapter({"primary": side, "foreign": foreign, "base": str(base)})


def least(work: Callable[[], object], records: int = RECORDS) -> float:
    """Microseconds of process time a record."""
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times) / records * 1e6


def framed(directory: Path, data: bytes, framing: Framing, has_header: bool) -> float:
    """Following a file of these bytes."""
    (directory / "a.log").write_bytes(data)

    def follow() -> None:
        follower = Follower(directory, has_header=has_header, framing=framing)
        follower.scan()
        got = 0
        while blocks := follower.poll(1 << 22):
            got += sum(block.data.count(b"\n") for block in blocks)
        follower.close()
        assert got == RECORDS, got

    return least(follow)


def measure(name: str, base: Path) -> tuple[float, float, float, float]:
    lines, file = lines_of(name)
    adapter = adapter_of(name, base)
    block = b"\n".join(lines) + b"\n"
    assert adapter.primary_keys(block, file)[-1] == f"Cvf4XX17hSAg{RECORDS - 1}".encode()
    header = file.header + b"\n" if file.header else b""
    data = delimited(messages()) if name == "protobuf" else header + block
    logs = base / "logs"
    logs.mkdir(exist_ok=True)
    return (
        framed(logs, data, adapter.primary_framing, adapter.primary_has_header),
        least(lambda: adapter.primary_keys(block, file)),
        least(lambda: adapter.header_columns(lines, file)),
        least(lambda: [adapter.foreign_payload(line, file) for line in lines]),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory)
        (base / "event.pb").write_bytes(descriptor_set())
        found = {name: measure(name, base) for name in SIDES}
    first = found["jsonl"]
    out = sys.stdout
    out.write(f"{'format':12}" + "".join(f"{each:>18}" for each in ("follow", "keys", "headers", "payload")) + "\n")
    for name, figures in found.items():
        cells = (f"{us:8.2f} us {us / base:5.1f}x" for us, base in zip(figures, first, strict=True))
        out.write(f"{name:12}" + "".join(f"{cell:>18}" for cell in cells) + "\n")


if __name__ == "__main__":
    main()
