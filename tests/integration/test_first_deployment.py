"""A first deployment of two datacentres: a file of eleven lines, three processes, and each click comes out once."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.supervision.ports import free_row
from tests.integration.commands import UP_S, Detached, photon, until

FILE = """\
key_file = "key"
[join.clicks]
unmatched_after = "10s"
primary = {{ format = "jsonl", key = "query_id" }}
foreign = {{ format = "jsonl", key = "query_id", id = "click_id", time = {{ field = "time", unit = "s" }} }}
[registry.replicas]
r1 = {{ address = "127.0.0.1:{0}" }}
[datacentre]
east = {{ join = "clicks", primary = "east/queries", foreign = "east/clicks", address = "127.0.0.1:{1}" }}
west = {{ join = "clicks", primary = "west/queries", foreign = "west/clicks", address = "127.0.0.1:{2}" }}
"""
CLICKS = 40
USAGE = 2


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Detached]:
    first = free_row(5)
    for datacentre in ("east", "west"):
        for logs in ("queries", "clicks"):
            (tmp_path / datacentre / logs).mkdir(parents=True)
        queries = "".join(f'{{"query_id": "q{n}"}}\n' for n in range(CLICKS))
        (tmp_path / datacentre / "queries" / "a.jsonl").write_text(queries)
        clicks = (f'{{"query_id": "q{n}", "click_id": "c{n}", "time": {int(time.time())}}}\n' for n in range(CLICKS))
        (tmp_path / datacentre / "clicks" / "a.jsonl").write_text("".join(clicks))
    (tmp_path / "key").write_bytes(bytes(32))
    text = FILE.format(first, first + 1, first + 3)
    assert len(text.splitlines()) <= 15
    (tmp_path / "photon.toml").write_text(text)
    site = Detached(tmp_path / "photon.toml")
    yield site
    site.down()


def test_two_datacentres_join_each_click_once(site: Detached) -> None:
    assert list(site.up()) == ["registry r1", "datacentre east", "datacentre west"]

    def ledgers() -> list[dict[str, int]]:
        said = json.loads(photon("status", "ledger", "--config", site.file, "-o", "json").out)
        return [each["total"] for each in said["datacentres"].values()]

    until(lambda: sum(each.get("joined", 0) for each in ledgers()) == CLICKS, UP_S, "all are joined")
    assert [each["read"] for each in ledgers()] == [CLICKS, CLICKS]

    page = f"http://127.0.0.1:{int(site.file.read_text().split('127.0.0.1:')[2].split(chr(34))[0]) + 1}"
    with urllib.request.urlopen(f"{page}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    for service, own in (("dispatcher", "read_total"), ("joiner", "open_ids"), ("eventstore", "cache_bytes")):
        assert (
            f'photon_up{{datacentre="east",process="east{"-1" * (service == "joiner")}",service="{service}"}} 1'
            in text
        )
        rows = [line for line in text.splitlines() if line.startswith(f"photon_{service}_{own}")]
        assert rows, own
        assert all(f'service="{service}"' in row for row in rows)  # each part says its own and nobody else's

    alone = photon("serve", "joiner", "--config", site.file, "--datacentre", "east")
    assert alone.code == USAGE
    assert "this part is not listed, so photon serve datacentre east runs it" in alone.err
