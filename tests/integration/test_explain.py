"""The story of one event from real processes over mutual TLS: by the command and by the status page; and of an event
in an output of photon join."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from photon.supervision.ports import free_ports
from tests.deployments import addresses, datacentre
from tests.integration.commands import photon, until
from tests.integration.verified_site import SLOT, T_S, Site

EVENTS, MISSING = 40, 2
WAIT_S = 120.0
TLS = '\n[tls]\ndirectory = "certs"\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """A pipeline over TLS that has joined its events, and its page's address."""
    site = Site(tmp_path_factory.mktemp("explain"), owned_alarm=300)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    text = site.file.read_text().replace('unmatched_after = "1s"', 'unmatched_after = "10min"')
    site.file.write_text(text.replace('state = "state"\n', f'state = "state"\napart.status = "{address}"\n', 1) + TLS)
    made = photon("certs", "for", site.file)
    assert made.code == 0, made.err
    site.write(EVENTS, missing=MISSING)
    try:
        site.up()
        until(lambda: len(site.ids()) == EVENTS - MISSING, WAIT_S, "what can be joined is")
        yield site, f"http://{address}"
    finally:
        photon("down", site.file)


def _explained(file: Path, event_id: str, code: int = 0) -> dict[str, Any]:
    result = photon("explain", event_id, "--config", file, "-o", "json")
    assert result.code == code, result.err + result.out
    found: dict[str, Any] = json.loads(result.out)
    return found


def _step(story: dict[str, Any], name: str) -> dict[str, Any]:
    (step,) = [each for each in story["steps"] if each["step"] == name]
    return dict(step)


def _get(url: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_a_joined_event(site: tuple[Site, str]) -> None:
    here, _ = site
    until(lambda: _step(_explained(here.file, "c000003"), "written")["cleared"], WAIT_S, "its record is cleared")
    story = _explained(here.file, "c000003")
    assert (story["verdict"], story["complete"], story["contradictions"]) == ("joined", True, [])
    assert (story["key"], story["event_time"]) == ("q000003", "2025-10-09T08:53:23.000000Z")
    lines = here.clicks.read_bytes().splitlines(keepends=True)
    read, written, registered = (_step(story, name) for name in ("read", "written", "registered"))
    assert (read["file"], read["offset"]) == ("clicks.log", sum(map(len, lines[:3])))
    output = (here.base / "output" / written["file"]).read_bytes()
    record = json.loads(output[written["offset"] :][: written["length"]])
    assert record["event_id"] == "c000003"
    assert record["token"] == written["token"] == registered["token"]
    assert (registered["slot"], registered["datacentre"], registered["kind"]) == (SLOT, "east", "joined")
    primary = _step(story, "primary")
    assert {key: primary[key] for key in ("file", "offset")} == record["primary_source"]
    by_place = _explained(here.file, f"clicks.log:{read['offset']}")
    assert (by_place["event_id"], by_place["verdict"]) == ("c000003", "joined")


def test_a_waiting_event_says_its_tries_and_why(site: tuple[Site, str]) -> None:
    here, _ = site
    wanted = f"c{EVENTS - 1:06d}"
    until(lambda: _step(_explained(here.file, wanted), "waiting")["attempts"] > 1, WAIT_S, "it was tried again")
    story = _explained(here.file, wanted)
    assert (story["verdict"], story["complete"]) == ("pending", True)
    assert "its primary event was not there yet" in _step(story, "waiting")["reason"]
    assert _step(story, "read")["at"]
    assert _step(story, "registered")["answer"] == "absent"


def test_an_id_that_nobody_knows_and_one_that_cannot_be(site: tuple[Site, str]) -> None:
    here, _ = site
    story = _explained(here.file, "c999999")
    assert (story["verdict"], story["complete"], story["steps"]) == ("unknown", True, [])
    searched = " ".join(each["what"] for each in story["searched"])
    assert "memory" in searched
    assert "retry store" in searched
    assert f"output of {SLOT}" in searched
    assert "foreign logs" in searched
    bad = photon("explain", "a\nb", "--config", here.file)
    assert (bad.code, "1 to 4096 bytes" in bad.err) == (2, True)


def test_a_datacentre_that_does_not_answer_is_named(site: tuple[Site, str]) -> None:
    here, _ = site
    other = here.base / "both.toml"
    west = datacentre(addresses(3), "eventstore", "dispatcher", "joiners.west-1", name="west", base="nowhere/")
    other.write_text(here.file.read_text() + west)
    made = photon("certs", "for", other)
    assert made.code == 0, made.err
    story = _explained(other, "c000003", code=3)
    assert (story["verdict"], story["complete"]) == ("joined", False)
    assert {each["where"] for each in story["missing"]} == {"west"}
    assert any("dispatcher west" in each["why"] for each in story["missing"])
    table = photon("explain", "c000003", "--config", other)
    assert (table.code, "missing  west" in table.out) == (3, True)


def _all_up(url: str) -> bool:
    code, status = _get(url)
    return code == 200 and {each["up"] for each in status["processes"]} == {True}


def test_the_status_page_tells_the_same_over_mutual_tls(site: tuple[Site, str]) -> None:
    """The page shows its own certificate, status-east, to every process; ``photon status`` the operator's."""
    here, url = site
    code, story = _get(f"{url}/explain.json?id=c000003")
    assert (code, story["verdict"], story["complete"]) == (200, "joined", True)
    assert _step(story, "registered")["slot"] == SLOT
    same = _explained(here.file, "c000003")
    for step in (*story["steps"], *same["steps"]):
        step.pop("applied", None)  # in the shard's log: it continues
    assert story["steps"] == same["steps"]
    assert _get(f"{url}/explain.json?{urllib.parse.urlencode({'id': 'c999999'})}")[1]["verdict"] == "unknown"
    assert _get(f"{url}/explain.json?id=")[0] == 400
    until(lambda: _all_up(f"{url}/status.json"), WAIT_S, "the page has figures of all processes")
    told = photon("status", "--config", here.file, "-o", "json")
    assert told.code == 0, told.err + told.out
    (east,) = json.loads(told.out)["datacentres"]
    assert {row["service"] for row in east["processes"] if row["up"]} == {
        "dispatcher", "joiner", "eventstore", "verifier", "registry",
    }  # fmt: skip


def test_an_output_of_photon_join(tmp_path: Path) -> None:
    for name, text in (("queries", '{"q":"q1"}\n'), ("clicks", f'{{"id":"c1","q":"q1","t":{T_S}}}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.log").write_text(text)
    (tmp_path / "join.toml").write_text(
        '[join.clicks.primary]\nformat = "jsonl"\nkey = "q"\n'
        '[join.clicks.foreign]\nformat = "jsonl"\nkey = "q"\nid = "id"\ntime = { field = "t", unit = "s" }\n'
    )
    sides = ("--primary", tmp_path / "queries", "--foreign", tmp_path / "clicks")
    done = photon("join", *sides, "--output", tmp_path / "out", "--config", tmp_path / "join.toml", "--once")
    assert done.code == 0, done.err
    result = photon("explain", "c1", tmp_path / "out", "-o", "json")
    assert result.code == 0, result.err
    story = json.loads(result.out)
    assert (story["verdict"], story["complete"]) == ("joined", True)
    assert _step(story, "written")["durable"]
    unknown = photon("explain", "c2", tmp_path / "out")
    assert (unknown.code, "no foreign event with this id" in unknown.out) == (0, True)
    assert "output of local-1" in unknown.out
    both = photon("explain", "c2", tmp_path / "out", "--config", tmp_path / "join.toml")
    assert both.code == 2
