"""While the key of a primary record is unknown, no missing key is absent, also after a restart."""

from __future__ import annotations

import pytest

from photon.adapters.contract import LogFile, Retry
from photon.config.clock import NEVER_NS
from photon.eventstore.api import ALL_BUT_ENDS_NS, LookUpCode
from photon.eventstore.file_map import MapKind
from photon.eventstore.keyless import FILE_NAME
from tests.unit.eventstore.helpers import Filled, LineAdapter

BLOCK = b"k,1\nhard,2\nj,3\n"
MINUTE_NS = 60 * 10**9


class Away(LineAdapter):
    """Does not know the key of ``hard`` while ``away``."""

    away = True

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        if self.away and record.startswith(b"hard"):
            raise Retry("the lookup service is away")
        return super().primary_key(record, file)


@pytest.mark.parametrize("kind", MapKind)
def test_a_missing_key_waits_until_each_record_has_its_key(filled: Filled, kind: MapKind) -> None:
    adapter = Away({})
    store = filled({"a.log": BLOCK}, adapter=adapter, kind=kind)
    assert store.ask(b"j")[0] is LookUpCode.FOUND
    assert store.ask(b"hard")[0] is LookUpCode.NOT_YET
    assert store.ask(b"none")[0] is LookUpCode.NOT_YET
    assert store.keyless.count == 1
    assert "a.log, offset 4: the adapter raised Retry: the lookup service is away" in store.told[0]
    store.clock.ns += MINUTE_NS
    store.read_all()
    assert store.ask(b"none")[0] is LookUpCode.NOT_YET

    adapter.away = False
    store.clock.ns += MINUTE_NS
    store.read_all()
    assert store.keyless.count == 0
    assert store.ask(b"hard") == (LookUpCode.FOUND, "a.log", 4, b"hard,2")
    assert store.ask(b"none")[0] is LookUpCode.ABSENT
    assert store.ask(b"k")[1:3] == ("a.log", 0)
    assert store.map.totals().events == 3
    assert store.map.totals().bad_records == 0


def test_a_restart_knows_of_it(filled: Filled) -> None:
    first = filled({"a.log": BLOCK}, adapter=Away({}))
    first.reader.commit()
    first.close()
    again = filled(adapter=Away({}))
    again.read_all()
    assert again.ask(b"none")[0] is LookUpCode.NOT_YET
    again.close()
    corrected = filled()
    corrected.read_all()
    assert corrected.ask(b"hard")[0] is LookUpCode.FOUND
    assert corrected.ask(b"none")[0] is LookUpCode.ABSENT


def test_once_ends_with_what_is_known(filled: Filled) -> None:
    store = filled({"a.log": BLOCK}, adapter=Away({}), once=True)
    assert store.reader.done
    assert store.reader.read_past_ns == ALL_BUT_ENDS_NS
    assert store.ask(b"none", NEVER_NS)[0] is LookUpCode.NOT_YET
    assert store.ask(b"k", NEVER_NS)[0] is LookUpCode.FOUND


def test_a_damaged_list_holds_as_well(filled: Filled) -> None:
    first = filled({"a.log": BLOCK}, adapter=Away({}))
    first.reader.commit()
    first.close()
    (first.logs.parent / "map" / FILE_NAME).write_bytes(b"PHKR 0 00000000\n{}")
    again = filled()
    again.read_all()
    assert again.ask(b"none")[0] is LookUpCode.NOT_YET
    assert "is damaged or of another version" in again.told[0]
