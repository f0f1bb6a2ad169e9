"""A package that settings need and that is not installed is reported in one line."""

from __future__ import annotations

import sys

import pytest

from photon.config.errors import UsageError
from photon.config.extras import check_extras
from photon.config.loader import ConfigError, convert
from tests.unit.refusals import one_line


def test_telemetry_without_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    check_extras(convert({}, "f"))
    settings = convert({"telemetry": {"endpoint": "http://127.0.0.1:4318"}}, "f")
    check_extras(settings)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    check_extras(convert({}, "f"))
    with pytest.raises(UsageError) as refused:
        check_extras(settings)
    assert str(refused.value) == (
        "[telemetry]: opentelemetry is not installed; pip install 'photon-join[otlp]', or remove the table"
    )


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "endpoint"),
        ({"endpoint": "127.0.0.1:4318"}, "telemetry.endpoint = '127.0.0.1:4318'"),
        ({"endpoint": "http://c:1", "traces": 2.0}, "telemetry.traces = 2.0"),
        ({"endpoint": "http://c:1", "trace": 1}, "did you mean 'traces'"),
    ],
)
def test_bad_telemetry_is_one_line(table: dict[str, object], said: str) -> None:
    with one_line(ConfigError, said):
        convert({"telemetry": table}, "photon.toml")


def test_no_password_stands_in_the_file_or_in_what_is_said_of_it() -> None:
    with pytest.raises(ConfigError, match="contains a user") as refused:
        convert({"telemetry": {"endpoint": "http://me:secret@c:1"}}, "photon.toml")
    assert "secret" not in str(refused.value)
