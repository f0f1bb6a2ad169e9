"""docs/configuration.md names every key with its default."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from photon.adapters.side import SideConfig
from photon.config import settings
from photon.config.units import seconds, size

TEXT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
SECTION = {"": "The rest", "join.NAME.primary": "`[join.NAME.primary]`"}
"""Where a table's keys stand, if not under its own name."""


def _rows(table: str) -> dict[str, str]:
    """key -> default, as documented for a table."""
    heading = SECTION.get(table, f"`[{table}]`")
    [section] = [part for part in TEXT.split("\n## ") if part.startswith(heading)]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) \|", section, re.MULTILINE))


TABLES = [t for t in settings.tables() if not re.search(r"SLOT|NODE|WORKER|replicas.NAME", t)]
INNER = set(settings.tables())
FIELDS = [
    (table, field)
    for table in TABLES
    for field in msgspec.structs.fields(settings.tables()[table])
    if not (table == "" and (field.name in INNER or f"{field.name}.NAME" in INNER))
]


@pytest.mark.parametrize(("table", "field"), FIELDS, ids=[f"{t}.{f.name}" for t, f in FIELDS])
def test_each_setting_is_documented_with_its_default(table: str, field: Any) -> None:
    shown = _rows(table)[field.name].strip("`")
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if field.required:
        assert shown == "required"
    elif isinstance(default, settings.Duration):
        assert seconds(shown) == default
    elif isinstance(default, settings.Size):
        assert size(shown) == default
    elif isinstance(default, str):
        assert shown == (default or "none")
    elif isinstance(default, bool):
        assert shown == str(default).lower()
    elif isinstance(default, int):
        assert int(shown) == default
    elif isinstance(default, float):
        assert float(shown) == default
    elif field.default_factory is not msgspec.NODEFAULT:
        assert shown == str(field.default_factory()).replace("'", '"')
    else:
        assert shown == "none"


SIDE = {field.name for field in msgspec.structs.fields(SideConfig)}


def test_each_key_of_a_side_is_documented_and_nothing_else() -> None:
    assert set(_rows("join.NAME.primary")) == SIDE


@pytest.mark.parametrize("table", TABLES)
def test_nothing_is_documented_that_does_not_exist(table: str) -> None:
    assert set(_rows(table)) <= {field.name for each, field in FIELDS if each == table}
