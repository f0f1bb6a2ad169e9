"""Half-written last lines, and primary keys that several primaries share."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.demo.check import records
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
    """A join of two directories, with files that are written as they are given."""

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
    """Of ``c31`` the file ends in ``c3``, which would read as another event; of ``q22`` in ``q2``."""
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
