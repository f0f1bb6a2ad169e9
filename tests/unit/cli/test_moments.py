"""Every option that takes a time accepts the same forms, and says which."""

from __future__ import annotations

import importlib

import click
import pytest

from photon.cli.main import main, walk
from photon.cli.units import given_ns
from photon.config.errors import UsageError

NOW = 1_800_000_000 * 10**9


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("now", 1_800_000_000), ("2h", 1_799_992_800), ("1 d", 1_799_913_600), ("1799999999.5", 1_799_999_999.5),
     ("2027-01-15", 1_799_971_200), ("2027-01-15T08:00:00+01:00", 1_799_996_400), ("2027-01-15T07", 1_799_996_400)],
)  # fmt: skip
def test_forms(value: str, seconds: float) -> None:
    assert given_ns("--from", value, NOW) == int(seconds * 10) * 10**8


@pytest.mark.parametrize("value", ["", "soon", "20270115", "2027-13-01", "2028-01-01", "1800000001"])
def test_what_is_none_says_what_would_be(value: str) -> None:
    with pytest.raises(UsageError, match=r"^--from .*: .*, or now$"):
        given_ns("--from", value, NOW)


def test_commands_with_times_use_it() -> None:
    """Any option with TIME in its help is parsed here, or, for --read-from, with the parts of this parser."""
    modules = set()
    for path, command in walk(main):
        for parameter in command.params:
            metavar = parameter.metavar if isinstance(parameter, click.Option) else None
            if metavar is not None and "TIME" in metavar and parameter.name != "read_from":
                assert command.callback is not None, path
                modules.add(command.callback.__module__)
    assert len(modules) >= 4, modules
    for name in modules:
        source = importlib.import_module(name).__file__
        assert source is not None
        with open(source) as file:
            assert "given_ns(" in file.read(), name
