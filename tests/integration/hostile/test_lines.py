"""Half-written last lines, and primary keys that several primaries share."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.lab.demo.check import records
from tests.integration.commands import Result, photon

PRIMARY = 'format = "csv"\ncolumns = ["text", "key"]\nkey = "key"'
FOREIGN = {
    "csv": ('format = "csv"\ncolumns = ["at", "key", "id"]', "{at},{key},{id}"),
    "tsv": ('format = "tsv"\ncolumns = ["at", "key", "id"]', "{at}\t{key}\t{id}"),
    "regex": ("format = \"regex\"\npattern = '(?P<at>\\d+) /(?P<key>\\w+) (?P<id>\\w+)'", "{at} /{key} {id}"),
    "logfmt": ('format = "logfmt"', "at={at} key={key} id={id}"),
}
EPOCH = 1_760_000_000


class Site:
    """A join of two directories, with files written exactly as given."""

    def __init__(self, base: Path, foreign: str = 'format = "jsonl"', more: str = "") -> None:
        self.primary, self.foreign, self.output = base / "primary", base / "foreign", base / "out"
        self.config = base / "join.toml"
        self.primary.mkdir()
        self.foreign.mkdir()
        rest = 'key = "key"\nid = "id"\ntime = { field = "at", unit = "s" }\n'
        self.config.write_text(f"[join.x]\n{more}\n[join.x.primary]\n{PRIMARY}\n[join.x.foreign]\n{foreign}\n{rest}")

    def once(self, *more: str) -> Result:
        sides = ("--primary", self.primary, "--foreign", self.foreign, "--output", self.output)
        return photon("join", *sides, "--config", self.config, "--once", "--quiet", "-o", "json", *more)

    def joined(self) -> dict[str, str]:
        """Event id -> the text of its primary."""
        found = list(records(self.output / "joined"))
        assert len({record["event_id"] for record in found}) == len(found)
        return {record["event_id"]: record["primary"]["text"] for record in found}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_last_line_that_is_being_written_waits_for_its_end(tmp_path: Path, name: str) -> None:
    """After ``c31`` the file ends in ``c3``, which would read as another event; after ``q22`` in ``q2``."""
    format_, line = FOREIGN[name]
    site = Site(tmp_path, format_)
    (site.primary / "q.log").write_text("one,q1\ntwo,q2")
    first, second, third = (
        line.format(at=EPOCH + n, key=key, id=event)
        for n, key, event in ((1, "q1", "c1"), (2, "q22", "c2"), (3, "q1", "c31"))
    )
    (site.foreign / "c.log").write_text(f"{first}\n{second}\n{third[:-1]}")

    torn = site.once()
    assert (torn.code, site.joined()) == (3, {"c1": "one"}), torn.err
    assert (torn.json["read"], torn.json["joined"], torn.json["pending"]) == (2, 1, 1)
    at = len(first) + len(second) + 2
    assert f"c.log: the last line, at offset {at}, has no line end" in torn.err
    assert "q.log: the last line, at offset 7, has no line end" in torn.err

    with (site.primary / "q.log").open("a") as log:
        log.write("2\n")
    with (site.foreign / "c.log").open("a") as log:
        log.write("1\n")
    whole = site.once()
    assert (whole.code, site.joined()) == (0, {"c1": "one", "c2": "two", "c31": "one"}), whole.err
    assert whole.json["read"] == whole.json["joined"] == 3


SHARED = "one,q1\ntwo,q2\nsame,q3\nother,q1\nsame,q3\n"
JOINED = {"first": {"c1": "one", "c2": "two", "c3": "same"}, "last": {"c1": "other", "c2": "two", "c3": "same"}}


@pytest.mark.parametrize("rule", ["first", "last", "reject"])
def test_a_key_that_several_primaries_share_is_told_and_treated_as_the_join_says(tmp_path: Path, rule: str) -> None:
    """``q1`` names two payments; ``q3`` one that was shipped twice."""
    format_, line = FOREIGN["csv"]
    site = Site(tmp_path, format_)
    if rule != "first":
        site.config.write_text(site.config.read_text().replace(PRIMARY, f'{PRIMARY}\nduplicates = "{rule}"'))
    (site.primary / "q.log").write_text(SHARED)
    events = [line.format(at=EPOCH + n, key=f"q{n}", id=f"c{n}") + "\n" for n in (1, 2, 3)]
    (site.foreign / "c.log").write_text("".join(events))

    result = site.once()
    ledger = result.json
    assert (ledger["read"], ledger["ambiguous"], ledger["unmatched"]) == (3, 1, 0), result.err
    first, last = ("offset 0", "offset 22") if rule != "last" else ("offset 22", "offset 0")
    places = f"'q1' is in q.log, {first}, and with other content in q.log, {last}"
    assert f"photon: 1 key has several different primary events: {places}; " in result.err
    assert result.err.count("several different primary events") == 1
    if rule == "reject":
        assert (result.code, site.joined(), ledger["rejected"]) == (3, {"c2": "two", "c3": "same"}, 1)
        (rejected,) = records(site.output / "rejected")
        assert rejected["event_id"] == "c1"
        assert rejected["reason"] == f"several primary events have its key: {places}"
    else:
        assert (result.code, site.joined()) == (0, JOINED[rule])
    shown = photon("status", "ledger", site.output, "-o", "json")
    assert f'"ambiguous":{1}' in shown.out.replace(" ", "")


def test_the_last_of_several_is_refused_where_it_is_not_to_be_had(tmp_path: Path) -> None:
    site = Site(tmp_path, FOREIGN["csv"][0], 'file_map = "sparse"')
    site.config.write_text(site.config.read_text().replace(PRIMARY, f'{PRIMARY}\nduplicates = "last"'))
    (site.primary / "q.log").write_text(SHARED)
    (site.foreign / "c.log").write_text("")
    result = site.once()
    assert result.code in (1, 2)
    assert 'primary.duplicates = "last" and file_map = "sparse"' in result.err
    assert "Traceback" not in result.err
