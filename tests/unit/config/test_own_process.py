"""A function in a process of its own: its answer, its errors, and its ends by crash or time-out."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from photon.config.errors import PhotonError
from photon.config.own_process import in_own_process

HERE = __name__
TIME_S = 60.0


@pytest.fixture(autouse=True)
def _finds_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


def doubled(number: int) -> int:
    print("user code prints")
    return 2 * number


async def awaited(number: int) -> int:
    await asyncio.sleep(0)
    return number


def fails() -> None:
    raise PhotonError("f.toml: is bad")


def breaks() -> None:
    raise ValueError("a defect")


def crashes() -> None:
    signal.raise_signal(signal.SIGSEGV)


def ends() -> None:
    os._exit(0)


def never_ends() -> None:
    re.match(r"(a+)+b", "a" * 64)


async def test_it_answers() -> None:
    assert await in_own_process(f"{HERE}:doubled", 21, timeout_s=TIME_S) == 42
    assert await in_own_process(f"{HERE}:awaited", 7, timeout_s=TIME_S) == 7
    assert await in_own_process("os:getpid", timeout_s=TIME_S) != os.getpid()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails", r"^f\.toml: is bad$"),
        ("breaks", "without an answer: exit code 1"),
        ("crashes", "Segmentation fault"),
    ],
)
async def test_an_end_is_one_line(name: str, said: str) -> None:
    with pytest.raises(PhotonError, match=said):
        await in_own_process(f"{HERE}:{name}", timeout_s=TIME_S)


async def test_a_loop_that_keeps_the_interpreter_is_ended() -> None:
    with pytest.raises(TimeoutError):
        await in_own_process(f"{HERE}:never_ends", timeout_s=1.0)
