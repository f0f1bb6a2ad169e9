"""HBase settings of the deployment file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Duration, Settings
from photon.fleet import hbase


def settings(retention: float | None = None, **tables: dict[str, Any]) -> Settings:
    one = {
        "join": "j",
        "primary": "p",
        "foreign": "f",
        "output": "o",
        "state": "s",
        "address": "e:1",
    }
    return msgspec.convert(
        {
            "registry": {} if retention is None else {"retention": Duration(retention)},
            "datacentre": {name: {**one, "hbase": table} for name, table in tables.items()},
        },
        Settings,
    )


def test_the_table_has_its_datacentre_s_name_unless_it_is_given() -> None:
    given = settings(east={"thrift": "h:1"}, west={"thrift": "h:1", "table": "photon:west"})
    assert [hbase.table_of(given, name).table for name in ("east", "west")] == ["photon_east", "photon:west"]  # type: ignore[union-attr]
    assert hbase.table_of(given, None) is None


def test_rows_outlive_the_registry_s_ids() -> None:
    assert hbase.ttl_s(settings(east={"thrift": "h:1"}), "east") is None
    assert hbase.ttl_s(settings(86_400, east={"thrift": "h:1"}), "east") == 108_000
    assert hbase.ttl_s(settings(86_400, east={"thrift": "h:1", "ttl": Duration(86_400)}), "east") == 86_400


@pytest.mark.parametrize("retention", [None, 86_400])
def test_rows_that_would_go_first_are_refused(retention: float | None) -> None:
    given = settings(retention, east={"thrift": "h:1", "ttl": Duration(86_399)})
    with pytest.raises(UsageError, match=r"datacentre\.east\.hbase\.ttl: .* raise ttl, or remove it"):
        hbase.check(given)


def test_two_pipelines_do_not_share_a_table() -> None:
    with pytest.raises(UsageError, match=r"west\.hbase\.table: photon_x belongs to datacentre east"):
        hbase.check(settings(**{n: {"thrift": "h:1", "table": "photon_x"} for n in ("east", "west")}))


def test_what_is_still_to_be_made() -> None:
    notes = hbase.check(settings(east={"thrift": "h:1"}))
    assert "photon eventstore init --config FILE --datacentre east" in notes[0]
    assert "hbase.admin is not set" in notes[1]
    assert hbase.check(settings()) == []


def test_init_says_in_one_line_that_nothing_is_to_make_or_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hbase, "INIT_SECONDS", 0.2)
    plain = settings(east={"thrift": "127.0.0.1:1"})
    with pytest.raises(PhotonError, match=r"HBase at 127\.0\.0\.1:1 cannot list tables .*") as raised:
        hbase.init(plain, "east")
    assert "\n" not in str(raised.value)
    without = msgspec.structs.replace(
        plain, datacentre={"east": msgspec.structs.replace(plain.datacentre["east"], hbase=None)}
    )
    with pytest.raises(UsageError, match=r"datacentre\.east\.hbase: is not in the configuration"):
        hbase.init(without, None)
