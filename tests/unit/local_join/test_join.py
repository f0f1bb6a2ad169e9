"""The checks of ``photon join`` before it begins: its configuration reads the logs, and equals the previous one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.join_adapters import adapter_of
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import convert
from photon.local_join.join import MANY, check_readable, check_rule, check_words
from photon.local_join.options import JoinOptions
from photon.local_join.site import Site
from photon.local_join.words import Words

TIME = {"field": "at", "unit": "s"}
SIDES = {"primary": {"format": "jsonl", "key": "k"}, "foreign": {"format": "jsonl", "key": "k", "time": TIME}}
SKIP = {"skip": [{"field": "foreign.kind", "differs": "alert"}]}
GOOD = {"k": "a", "at": 1_760_000_000, "kind": "alert"}


def look(base: Path, foreign: list[dict[str, Any]], *, shape: dict[str, Any] | None = None, **time: Any) -> list[str]:
    """Returns the messages about these foreign records."""
    for side, rows in (("p", [{"k": "a"}]), ("f", foreign)):
        (base / side).mkdir(exist_ok=True)
        (base / side / "a.log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    join = {**SIDES, "foreign": {**SIDES["foreign"], "time": {**TIME, **time}}}
    join |= {"shape": shape} if shape else {}
    settings = convert({"join": {"x": join}}, "a file")
    said: list[str] = []
    adapter = adapter_of(settings, "x", base)
    check_readable(adapter, settings.join["x"], JoinOptions(base / "p", base / "f", base / "out"), said.append)
    return said


def test_a_configuration_is_wrong_only_if_nothing_at_all_can_be_read(tmp_path: Path) -> None:
    other, keyless = {"at": 1, "kind": "dns", "k": "a"}, {"at": 1_760_000_000}
    assert look(tmp_path, [other] * 600 + [GOOD], shape=SKIP) == []
    assert look(tmp_path, [other] * 600, shape=SKIP) == [], "what is skipped says nothing"
    assert look(tmp_path, [keyless] * 600 + [GOOD]) == []
    assert look(tmp_path, [keyless] * (MANY - 1)) == [], "too few to say"
    with pytest.raises(UsageError, match=r"none of the first 600 foreign records can be read .* key field 'k' is"):
        look(tmp_path, [keyless] * 600)
    with pytest.raises(UsageError, match="none of the first 300 foreign records can be read"):
        look(tmp_path, [other] * 300 + [{"kind": "alert"}] * 300, shape=SKIP)


def test_event_times_of_another_age_are_told(tmp_path: Path) -> None:
    (said,) = look(tmp_path, [GOOD] * 30, unit="us")
    assert said.endswith('for instance 1970-01-01T00:29:20Z: at is read as unit = "us", and unit = "s" would fit')
    assert look(tmp_path, [GOOD] * 30) == []
    assert look(tmp_path, [GOOD] * 30, unit="us", origin="2025-01-01") == [], "counted from a day"


KEPT = {
    "primary": {"format": "csv", "key": ["a", "b"]},
    "foreign": {"format": "jsonl", "key": ["a", "c"], "time": {"field": "at", "format": "%d.%m.%Y"}},
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (Words(), ""),
        (Words(primary_key=("a", "b"), foreign_key=("a", "c"), time="at", unit="%d.%m.%Y"), ""),
        (Words(time={"field": "at", "format": "%d.%m.%Y", "zone": "UTC"}), ""),
        (Words(format={"primary": "csv"}), ""),
        (Words(key=("a", "b")), 'started with foreign.key = ["a", "c"]; to use foreign.key = ["a", "b"], give a new'),
        (Words(id="x"), "started with id = place; to use id = x, give a new --output"),
        (Words(time="on"), "started with time.field = at; to use time.field = on, give"),
        (Words(time="at", unit="s"), "started with time.unit = %d.%m.%Y; to use time.unit = s, give"),
        (
            Words(time={"field": "at", "zone": "+02:00"}),
            "time.zone = UTC; to use time.zone = +02:00, give",
        ),
        (Words(format="csv"), "started with foreign.format = jsonl; to use foreign.format = csv, give"),
    ],
)
def test_other_words_than_an_output_was_begun_with_are_refused(tmp_path: Path, words: Words, said: str) -> None:
    if not said:
        check_words(Site(tmp_path), words, {"join": {"join": KEPT}})
        return
    with pytest.raises(UsageError, match=re.escape(said)):
        check_words(Site(tmp_path), words, {"join": {"join": KEPT}})


def adapter(**more: Any) -> ConfiguredAdapter:
    return ConfiguredAdapter({**SIDES, "foreign": {**SIDES["foreign"], **more}})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"id": "click_id"}, "started with id = place; to use id = click_id, give a new --output"),
        ({"key": "q"}, "started with foreign.key = k; to use foreign.key = q, give a new --output"),
        ({"time": {**TIME, "unit": "ms"}}, "started with foreign.time.unit = s; to use foreign.time.unit = ms, give"),
        ({"absent": "-"}, 'started with foreign.absent = none; to use foreign.absent = ["-"], give a new --output'),
    ],
)
def test_another_rule_is_named_by_what_differs(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    site, disk = Site(tmp_path / "out"), RealDisk()
    site.state.mkdir(parents=True)
    check_rule(site, adapter(**more), disk)
    check_rule(site, adapter(), disk)  # nothing was registered yet: it may still change
    site.registry("").mkdir()
    check_rule(site, adapter(), disk)
    with pytest.raises(UsageError) as refused:
        check_rule(site, adapter(**more), disk)
    assert said in str(refused.value)
    assert str(refused.value).startswith(f"{site.output}: this output was")
