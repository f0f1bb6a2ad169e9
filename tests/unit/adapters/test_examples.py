"""The worked examples keep the contract on their logs, and report what their READMEs say."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.adapters.contract import Adapter, BadRecord, Filtered, ForeignHeader, Joined
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.testkit import Sample, Samples, examine
from photon.adapters.testkit.answers import pairs
from photon.config.loader import convert
from photon.config.settings import Join

EXAMPLES = Path(__file__).parents[3] / "adapters" / "examples"
LOGS = [
    ("ads_billing", "queries.log", "clicks.log"),
    ("access_errors", "access.log", "app.log"),
    ("zeek_protocols", "conn.log", "dns.log"),
    ("zeek_protocols", "conn.log", "http.log"),
    ("zeek_protocols", "conn.log", "ssl.log"),
    ("stack_traces", "access.log", "app.log"),
    ("avro_clicks", "searches.avro", "clicks.avro"),
    ("length_crc", "sessions.bin", "samples.bin"),
]


def example(name: str) -> tuple[Join, str, Adapter]:
    settings = convert(tomllib.loads((EXAMPLES / name / "photon.toml").read_text()), name)
    ((join_name, join),) = settings.join.items()
    return join, join_name, adapter_of_join(join, join_name, EXAMPLES / name)


def samples(name: str, adapter: Adapter, primary: str, foreign: str) -> Samples:
    logs = EXAMPLES / name / "logs"
    return Samples.read(adapter, primary=logs / "primary" / primary, foreign=logs / "foreign" / foreign)


def joins(adapter: Adapter, given: Samples) -> list[Joined | Filtered | BadRecord]:
    found: list[Joined | Filtered | BadRecord] = []
    for foreign, primary in pairs(adapter, given):
        try:
            found.append(adapter.join(foreign.record, foreign.file, primary.record, primary.file))
        except BadRecord as bad:
            found.append(bad)
    return found


def values(results: list[Joined | Filtered | BadRecord]) -> list[tuple[Any, Any]]:
    return [
        (orjson.loads(each.foreign or b""), orjson.loads(each.primary or b""))
        for each in results
        if isinstance(each, Joined)
    ]


@pytest.mark.parametrize(("name", "primary", "foreign"), LOGS)
def test_the_contract_is_kept(name: str, primary: str, foreign: str) -> None:
    _, _, adapter = example(name)
    given = samples(name, adapter, primary, foreign)
    # Skipped lines are no samples of events.
    kept = [each for each in given.foreign if not isinstance(header(adapter, each), BadRecord)]
    assert str(examine(adapter, Samples(given.primary, kept, given.begins))) == "the contract is kept"


def header(adapter: Adapter, each: Sample) -> ForeignHeader | BadRecord:
    (found,) = adapter.header_columns([each.record], each.file).rows()
    return found


def test_every_folder_has_its_parts() -> None:
    named = {name for name, _, _ in LOGS}
    assert {each.name for each in EXAMPLES.iterdir() if each.is_dir() and each.name != "__pycache__"} == named
    assert all((EXAMPLES / name / "README.md").is_file() for name in named)
    assert all(f"({name}/README.md)" in (EXAMPLES / "README.md").read_text() for name in named)


def test_clicks_are_billed_filtered_and_refused() -> None:
    _, _, adapter = example("ads_billing")
    given = samples("ads_billing", adapter, "queries.log", "clicks.log")
    results = joins(adapter, given)
    assert Counter(type(each) for each in results) == {Joined: 10, Filtered: 6, BadRecord: 1}
    assert {each.reason for each in results if isinstance(each, BadRecord)} == {"slot 9 was not shown"}
    assert Counter(each.reason for each in results if isinstance(each, Filtered)) == {
        "the campaign is not billed": 3,
        "the search came from a bot": 2,
        "the click is too long after the search, or before it": 1,
    }
    for billed, shown in values(results):
        assert billed["charged_micros"] > 0
        assert 0 < billed["seconds_after_query"] <= 1800
        assert shown.keys() == {"query_id", "country", "ads_shown"}  # no user, no agent
    by_currency: Counter[str] = Counter()
    for billed, _ in values(results):
        by_currency[billed["currency"]] += billed["charged_micros"]
    assert by_currency.keys() == {"EUR", "GBP"}


def test_what_is_billed_hangs_on_the_options() -> None:
    join, name, _ = example("ads_billing")
    strict = adapter_of_join(
        Join(adapter=join.adapter, options={"latest_s": 5, "not_billed": []}), name, EXAMPLES / "ads_billing"
    )
    given = samples("ads_billing", strict, "queries.log", "clicks.log")
    reasons = Counter(each.reason for each in joins(strict, given) if isinstance(each, Filtered))
    assert "the campaign is not billed" not in reasons
    assert reasons["the click is too long after the search, or before it"] > 1


def test_errors_meet_their_requests() -> None:
    _, _, adapter = example("access_errors")
    given = samples("access_errors", adapter, "access.log", "app.log")
    assert sum(b"heartbeat" in each.record for each in given.foreign) == 2
    results = joins(adapter, given)
    assert [each.reason for each in results if isinstance(each, Filtered)] == ["only errors count"]
    found = values(results)
    assert len(found) == 8
    for error, request in found:
        assert request["status"] in ("500", "502", "503")
        assert request["client"].startswith("****")
        assert "?" not in request["route"]
        assert request["route"] in error["summary"]
        assert error["summary"].startswith(f"{error['component']}: {error['error']} at ")


def test_requests_meet_their_connections() -> None:
    _, _, adapter = example("zeek_protocols")
    found = []
    for name in ("dns.log", "http.log", "ssl.log"):
        given = samples("zeek_protocols", adapter, "conn.log", name)
        results = joins(adapter, given)
        assert len(results) == len(given.foreign)
        found += values(results)
    assert len(found) == 28
    for seen, connection in found:
        assert seen["name"] in ("www.example.org", "cdn.example.net", "mail.example.com", "updates.example.org")
        assert " > " in seen["flow"]
        assert not [name for name in seen if name.startswith("id.")]
        assert connection["service"] in ("dns", "http", "ssl")
