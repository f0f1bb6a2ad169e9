"""Secrets come from files: no option of a command and no setting takes one by value."""

from __future__ import annotations

import re

import click
import pytest

from photon.config.settings import tables
from tests.docs.test_documents import COMMANDS

SECRET = re.compile(
    r"(?:^|[-_])(?:key|secret|password|passphrase|token|credentials?|cert|certificates?|tls|ca)(?:$|[-_])"
)


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_no_option_takes_a_secret_by_value(path: tuple[str, ...], command: click.Command) -> None:
    for option in command.params:
        for name in option.opts:
            if SECRET.search(name.lstrip("-")) and not (isinstance(option, click.Option) and option.is_flag):
                joined_by = option.metavar == "FIELD"  # the key of records, a field's name
                assert joined_by or isinstance(option.type, click.Path | click.File), f"{' '.join(path)} {name}"


def test_no_setting_holds_a_secret() -> None:
    for place, table in tables().items():
        for field in table.__struct_fields__:
            if SECRET.search(field):
                assert field in {"key_file", "tls"}, f"{place}: {field}: name a file that holds it"


def test_the_words_are_found() -> None:
    for name in ("key-file", "api-key", "password", "auth_token", "tls"):
        assert SECRET.search(name), name
