"""Keys that an event lists: read one by one and in columns, in every format; what names none, or too many, is bad."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import AdapterError, BadRecord
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.key_lists import KEYS_MAX, keys_in, list_of_keys
from photon.config.settings import Join

KEYS = st.lists(st.binary(min_size=1, max_size=4) | st.text("|~01", min_size=1).map(str.encode), min_size=1)


@given(KEYS)
def test_a_list_holds_each_key_once_in_its_order(keys: list[bytes]) -> None:
    assert keys_in(list_of_keys(keys)) == list(dict.fromkeys(keys))


@given(KEYS, KEYS)
def test_different_lists_differ(one: list[bytes], other: list[bytes]) -> None:
    assert (list_of_keys(one) == list_of_keys(other)) == (list(dict.fromkeys(one)) == list(dict.fromkeys(other)))


def test_no_key_and_too_many_are_bad() -> None:
    with pytest.raises(BadRecord, match="names no key"):
        list_of_keys([b""])
    with pytest.raises(BadRecord, match="more than 1,000 keys"):
        list_of_keys(b"%d" % n for n in range(KEYS_MAX + 1))


@pytest.mark.parametrize("match", ["first", "latest"])
def test_an_event_of_several_keys_takes_all_that_they_name(match: Any, tmp_path: Any) -> None:
    time = {"field": "t", "unit": "s"}
    sides = {
        "primary": {"format": "jsonl", "key": "o", "time": time},
        "foreign": {"format": "jsonl", "key": {"field": "o", "each": True}, "time": time},
    }
    assert adapter_of_join(Join(**sides, match="all"), "x", tmp_path).several_keys
    with pytest.raises(AdapterError, match='write match = "all"'):
        adapter_of_join(Join(**sides, match=match), "x", tmp_path)
