"""photon joiner drain, dispatcher pause and resume on a small running deployment, while events arrive."""

from __future__ import annotations

import json
import re
from pathlib import Path

from photon.fleet.ledger import balances, read_ledger
from photon.lab.demo.check import records
from photon.supervision.ports import free_ports
from tests.integration.commands import Result, photon, until
from tests.integration.verified_site import Site, site_in

WAIT_S = 120.0
FAILED = 1


def second_joiner(base: Path) -> None:
    """Adds it to the file, before anything runs."""
    [port] = free_ports(1)
    file = base / "photon.toml"
    text = file.read_text().replace("joiners = 1\n", "joiners = 2\n")
    file.write_text(re.sub(r"apart.joiner = '([^']*)'", rf'apart.joiner = ["\1", "127.0.0.1:{port}"]', text))


def told(site: Site, *words: str, code: int = 0) -> Result:
    result = photon(*words, "--config", site.file, timeout=300)
    assert result.code == code, result.err
    return result


def joined(site: Site) -> list[str]:
    return sorted(each["event_id"] for each in records(site.base / "output" / "joined"))


def settled(site: Site) -> bool:
    """All written events are joined, once."""
    return joined(site) == [f"c{n:06d}" for n in range(site.events)]


def counted(site: Site) -> bool:
    """All written events have verdicts in the ledger."""
    ledger = read_ledger(site.base / "state")
    return ledger["read"] >= site.events and ledger["pending"] == 0


def test_a_joiner_is_drained_and_a_dispatcher_paused_under_traffic(tmp_path: Path) -> None:
    with site_in(tmp_path, prepare=second_joiner) as site:
        site.write(300)
        until(lambda: settled(site), WAIT_S, "both joiners work")

        would = told(site, "joiner", "drain", "east-1", "--dry-run")
        assert would.out == "joiner east-1 would be drained and held; nothing was changed\n"
        site.write(2_000)
        done = told(site, "joiner", "drain", "east-1", "-o", "json")
        assert json.loads(done.out) == {"joiner": "joiner east-1", "dry_run": False, "drained": True}
        until(lambda: settled(site), WAIT_S, "the other one joins the rest")

        refused = told(site, "joiner", "drain", "east-2", code=FAILED)
        assert "is the last joiner of east that is up" in refused.err
        assert refused.err.count("\n") == 1
        assert photon("release", site.file, "joiner").code == 0

        told(site, "dispatcher", "pause")
        before = read_ledger(site.base / "state")["read"]
        site.write(200)
        late = told(site, "dispatcher", "pause", "--dry-run")
        assert "nothing was changed" in late.out
        assert read_ledger(site.base / "state")["read"] == before
        assert not settled(site)
        resumed = told(site, "dispatcher", "resume")
        assert resumed.out == "resumed: dispatcher east\n"
        until(lambda: settled(site), WAIT_S, "what came meanwhile is read")
        until(lambda: counted(site), WAIT_S, "the ledger has it, which is written after the output")
        ledger = read_ledger(site.base / "state")
        assert balances(ledger)
        assert (ledger["joined"], ledger["duplicate"]) == (site.events, 0)

        lines = json.loads(told(site, "status", "audit", "-o", "json").out)["commands"]
        assert [(each["command"], each["outcome"]) for each in lines if each["command"] != "up"] == [
            ("joiner drain", "done"),
            ("joiner drain", "failed"),
            ("release", "done"),
            ("dispatcher pause", "done"),
            ("dispatcher resume", "done"),
        ]
