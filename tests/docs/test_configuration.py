"""The site's page of settings has every key with its default and meaning, made from the settings' comments."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.adapters.side import SideConfig
from photon.config import settings
from photon.config.units import seconds, size

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "site" / "hooks.py")
assert SPEC is not None
assert SPEC.loader is not None
HOOKS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(HOOKS)
TEXT = HOOKS.on_page_markdown((ROOT / "docs" / "configuration.md").read_text())
# Where a table's keys stand, if not under its own name.
SECTION = {"": "The rest", "join.NAME.primary": "`[join.NAME.primary]`"}


def _rows(table: str) -> dict[str, str]:
    """key -> default, as shown for a table; each has a meaning."""
    heading = SECTION.get(table, f"`[{table}]`")
    [section] = [part for part in TEXT.split("\n## ") if part.startswith(heading)]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \| .+ \|$", section, re.MULTILINE))


TABLES = [t for t in settings.tables() if not re.search(r"SLOT|NODE|WORKER|replicas.NAME", t)]
INNER = set(settings.tables())
FIELDS = [
    (table, field)
    for table in TABLES
    for field in msgspec.structs.fields(settings.tables()[table])
    if not (table == "" and (field.name in INNER or f"{field.name}.NAME" in INNER))
]


@pytest.mark.parametrize(("table", "field"), FIELDS, ids=[f"{t}.{f.name}" for t, f in FIELDS])
def test_each_setting_is_shown_with_its_default(table: str, field: Any) -> None:
    shown = _rows(table)[field.name].strip("`")
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if field.required:
        assert shown == "required"
    elif isinstance(default, settings.Duration):
        assert seconds(shown) == default
    elif isinstance(default, settings.Size):
        assert size(shown) == default
    elif default is None and field.default_factory is msgspec.NODEFAULT:
        assert shown == "none"


def test_each_key_of_a_side_is_shown() -> None:
    assert set(_rows("join.NAME.primary")) == {field.name for field in msgspec.structs.fields(SideConfig)}


@pytest.mark.parametrize("table", TABLES)
def test_no_other_key_is_shown(table: str) -> None:
    assert set(_rows(table)) == {field.name for each, field in FIELDS if each == table}
