"""Every refusal is one line: a function's error, or a command's output with the exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from photon.cli.main import main

E = TypeVar("E", bound=Exception)


@contextmanager
def one_line(error: type[E], said: str) -> Iterator[pytest.ExceptionInfo[E]]:
    with pytest.raises(error) as caught:
        yield caught
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def photon(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def refused(done: Result, code: int = 2) -> str:
    assert (done.exit_code, done.output.count("\n")) == (code, 1), done.output
    return done.output
