"""`photon join` with redacted fields: they are in none of the outputs, regardless of their event's verdict."""

from __future__ import annotations

import json
from pathlib import Path

from photon.lab.demo.check import records
from tests.integration.commands import photon

CONFIG = """
[join.clicks.primary]
format = "jsonl"
key = "query"
[join.clicks.foreign]
format = "jsonl"
key = "query"
id = "click"
time = { field = "at", unit = "s" }
[join.clicks.shape]
filter = [{ field = "primary.agent", equals = "bot", reason = "a bot" }]
redact = { "foreign.mail" = "drop", "foreign.user.phone" = "mask", "primary.agent" = "drop" }
"""
SECRETS = ("ada@example.org", "+49 30 1234567")


def click(number: int, **more: object) -> str:
    secret = {"mail": SECRETS[0], "user": {"phone": SECRETS[1], "plan": "pro"}}
    return json.dumps({"click": f"c{number}", "query": f"q{number}", "at": 1_760_000_000 + number, **secret, **more})


def test_redacted_fields_are_in_no_output(tmp_path: Path) -> None:
    primary, foreign, output = tmp_path / "queries", tmp_path / "clicks", tmp_path / "out"
    primary.mkdir()
    foreign.mkdir()
    (tmp_path / "join.toml").write_text(CONFIG)
    queries = [{"query": "q1", "agent": "x"}, {"query": "q2", "agent": "bot"}, {"query": "q3", "agent": "x"}]
    (primary / "q.log").write_text("".join(json.dumps(each) + "\n" for each in queries))
    lines = [
        click(1), click(2), click(3, user="\\"), click(4), click(5, at="soon"), click(6)[:-1],
        f"{SECRETS[0]} {SECRETS[1]}",
    ]  # fmt: skip
    (foreign / "c.log").write_text("".join(line + "\n" for line in lines))
    done = photon(
        "join", "--primary", primary, "--foreign", foreign, "--output", output, "--once", "-o", "json",
        "--config", tmp_path / "join.toml",
    )  # fmt: skip
    counts = done.json
    found = {kind: counts[kind] for kind in ("read", "joined", "filtered", "unmatched", "rejected")}
    assert found == {"read": 7, "joined": 2, "filtered": 1, "unmatched": 1, "rejected": 3}, done.err
    for kind in ("joined", "filtered", "unmatched", "rejected"):
        for path in (output / kind).iterdir():
            text = path.read_text()
            assert not [each for each in SECRETS if each in text], (kind, text)
    (unmatched,) = records(output / "unmatched")
    assert json.loads(unmatched["record"]) == {
        "click": "c4", "query": "q4", "at": 1_760_000_004, "user": {"phone": "****4567", "plan": "pro"},
    }  # fmt: skip
    (filtered,) = records(output / "filtered")
    assert (filtered["reason"], "mail" in filtered["record"]) == ("a bot", False)
    rejected = sorted(records(output / "rejected"), key=lambda each: each["source"]["offset"])
    assert [each["record"] is None for each in rejected] == [False, True, True]
    assert [each["source"]["offset"] for each in rejected] == [sum(map(len, lines[:n])) + n for n in (4, 5, 6)]
    assert all(each["reason"] for each in rejected)
