"""A replica learns the rules of its joins without running adapters of users itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from photon.assembly import registry
from photon.assembly.registry import rule_of, rules_for_replica
from photon.config.loader import load
from tests.deployments import write

ADAPTER = """
import os, re
{first}
from photon.adapters.contract import Adapter, ForeignHeader
class Own(Adapter):
    def foreign_header(self, record, file):
        return ForeignHeader(record, 0, record)
    def primary_key(self, record, file):
        return record
    def foreign_payload(self, record, file):
        return record
    primary_payload = foreign_payload
"""
CONFIGURED = 'primary = { format = "jsonl", key = "q" }\nforeign = { format = "jsonl", key = "q", id = "c" }\n'


@pytest.mark.parametrize(
    "first", ["", "os._exit(0)", 're.match(r"(a+)+b", "a" * 64)', "raise SystemExit", "this is no Python"]
)
async def test_an_adapter_that_crashes_or_loops_costs_its_own_rule(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.py").write_text(ADAPTER.format(first=first))
    file = write(tmp_path, f'[join.other]\n{CONFIGURED}[join.own]\nadapter = "own.py:Own"\n')
    settings = load(file, environment={})
    if "match" in first:
        monkeypatch.setattr(registry, "RULE_S", 2.0)
    monkeypatch.delitem(sys.modules, "photon_adapter_own", raising=False)  # of another test
    rules = await rules_for_replica(settings, tmp_path)
    assert "photon_adapter_own" not in sys.modules
    assert rules["other"] == rule_of(settings, tmp_path, "other")
    assert ("own" in rules) == (first == "")
    assert first or rules["own"] == rule_of(settings, tmp_path, "own")
