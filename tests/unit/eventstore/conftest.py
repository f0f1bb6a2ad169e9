"""Stores that are closed at the end of a test, if not before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.unit.eventstore.helpers import Store


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Opens a store, appends to its logs and has it read all; without logs it reads nothing."""
    stores: list[Store] = []

    def opened(logs: dict[str, bytes] | None = None, *, base: Path = tmp_path, **options: Any) -> Store:
        store = Store(base, **options)
        store.close = cache(store.close)  # type: ignore[method-assign]
        stores.append(store)
        for name, data in (logs or {}).items():
            store.write(name, data)
        if logs:
            store.read_all()
        return store

    yield opened
    for each in stores:
        each.close()
