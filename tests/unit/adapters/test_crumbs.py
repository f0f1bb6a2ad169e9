"""A record that kills the process does so twice; then user code is no longer called for it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from photon.adapters.crumbs import (
    CLOSED,
    FIRST_BUDGET,
    FULL,
    OOM_SCORE,
    POISON_NAME,
    Crumbs,
    CrumbsBusy,
    died_in_user_code,
    digest_of,
)
from photon.config.disk import RealDisk

RUN = """
import ctypes, os, resource, signal, sys
from pathlib import Path
from photon.adapters.containment import Guard, keep_crumbs
from photon.adapters.contract import Adapter
from photon.adapters import crumbs
from photon.config.disk import RealDisk

class Own(Adapter):
    time_limit_s = 0.1
    memory_limit = 64 << 20
Own.__abstractmethods__ = frozenset()
directory, how, *ends = sys.argv[1:]

def ask(record):
    if record == b"BAD":
        if how == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            os._exit(0)
        if how == "memory":
            bytearray(LARGE)
            return record
        if how == "close":
            os.closerange(3, 256)
            return record
        if how == "replace":
            os.closerange(3, 256)
            kept.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(64))
            return record
        if how == "open":
            kept.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(1000))
        while True:
            try:
                while True:
                    pass
            except BaseException:
                pass
    return record
kept = []
LARGE = 256 << 20


def start(ended):
    crumbs.predecessor(ended)
    adapter = keep_crumbs(Own({}), Path(directory), RealDisk())
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    records = [b"a", b"BAD", b"c"]
    guard = Guard(adapter)
    many = guard.many(lambda own: [ask(each) for each in own], records)
    for each in many if isinstance(many, list) else guard.each(records, ask):
        print("=", each)
    bytearray(LARGE)
    print("score", Path("/proc/self/oom_score_adj").read_text())
    sys.stdout.flush()
    os._exit(0)


for ended in ends:
    pid = os.fork()
    if pid == 0:
        start(ended)
    os.waitpid(pid, 0)
    print("died", crumbs.died_in_user_code(Path(directory)), flush=True)
"""


@dataclass
class Start:
    """One start of the process: its answers, if it lived to give them, and whether it died in user code."""

    output: str
    died: bool

    @property
    def answers(self) -> list[str]:
        return [line.removeprefix("= ") for line in self.output.splitlines() if line.startswith("= ")]


def starts(directory: Path, how: str, *ended: str) -> list[Start]:
    """Starts one process after the other, each a copy of one that has imported the modules. ``ended`` has a word per
    start: how its predecessor ended."""
    command = [sys.executable, "-c", RUN, str(directory), how, *ended]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
    *parts, rest = re.split(r"^died (True|False)\n", said, flags=re.MULTILINE)
    assert rest == ""
    made = [Start(output, died == "True") for output, died in zip(parts[::2], parts[1::2], strict=True)]
    assert len(made) == len(ended)
    return made


@pytest.mark.parametrize(
    ("how", "ended", "reason"),
    [
        ("segv", "signal 11", "crashed: signal 11"),
        ("exit", "exit 0", "crashed: exit 0"),
        ("hang", "", "crashed: the adapter did not return within 0.1 s, and catches the exception that stops it"),
        ("close", "exit 70", f"crashed: {CLOSED}"),
        ("replace", "exit 70", f"crashed: {CLOSED}"),
        ("open", "exit 70", f"crashed: {FULL}"),
    ],
)
def test_the_third_start_goes_on_without_the_record(tmp_path: Path, how: str, ended: str, reason: str) -> None:
    first, second, *later = starts(tmp_path, how, *[ended] * 4)
    assert [(each.answers, each.died) for each in (first, second)] == [([], True)] * 2
    fault = f"Fault(reason={reason!r}, hung=False, retry=False)"
    assert [(each.answers, each.died) for each in later] == [(["b'a'", fault, "b'c'"], False)] * 2


def test_memory_is_limited_in_user_code_and_such_a_process_ends_before_others(tmp_path: Path) -> None:
    (only,) = starts(tmp_path, "memory", "")
    assert f"score {OOM_SCORE}" in only.output
    first, fault, last = only.answers
    assert (first, last) == ("b'a'", "b'c'")
    assert "the adapter raised MemoryError" in fault


def test_kills_from_outside_accuse_a_record_only_when_it_is_always_the_same(tmp_path: Path) -> None:
    *killed, last = starts(tmp_path, "kill", *["signal 9"] * 5)
    assert [each.answers for each in killed] == [[]] * 4
    assert "crashed: signal 9" in last.answers[1]


def died_on(directory: Path, record: bytes, ended: str) -> Crumbs:
    """A process that died on this record, and the next one."""
    first = Crumbs(directory, RealDisk(), "")
    first.on(first.enter(), digest_of(record))
    return Crumbs(directory, RealDisk(), ended)


def test_kills_in_different_records_accuse_none(tmp_path: Path) -> None:
    for record in (b"a", b"b") * 4:
        assert died_on(tmp_path, record, "signal 9").poison == {}


def test_an_end_outside_of_user_code_is_not_suspicious(tmp_path: Path) -> None:
    first = Crumbs(tmp_path, RealDisk(), "")
    first.leave(first.enter())
    assert not died_in_user_code(tmp_path)
    assert not Crumbs(tmp_path, RealDisk(), "signal 11").suspicious


def test_suspicion_passes_and_lasts_longer_the_next_time(tmp_path: Path) -> None:
    for budget in (FIRST_BUDGET, 2 * FIRST_BUDGET):
        first = Crumbs(tmp_path, RealDisk(), "")
        first.enter()
        second = Crumbs(tmp_path, RealDisk(), "signal 11")
        assert second.poison == {}  # a batch does not identify a record
        slot = second.enter()
        for number in range(budget):
            assert second.suspicious
            second.on(slot, digest_of(b"%d" % number))
        assert not second.suspicious
        second.leave(slot)


def test_a_damaged_list_is_begun_again(tmp_path: Path) -> None:
    assert died_on(tmp_path, b"a", "signal 11").poison == {digest_of(b"a"): "crashed: signal 11"}
    (tmp_path / POISON_NAME).write_bytes(b"PHPR 2 00000000\n{}")
    assert Crumbs(tmp_path, RealDisk(), "").poison == {}


HOLDS = """
import sys
from pathlib import Path
from photon.adapters.crumbs import Crumbs
from photon.config.disk import RealDisk
kept = Crumbs(Path(sys.argv[1]), RealDisk(), "")
print("kept", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_share_them(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"kept\n"
        with pytest.raises(CrumbsBusy):
            Crumbs(tmp_path, RealDisk(), "")
        other.communicate()


def test_a_pair_is_no_other_pair_with_the_same_bytes() -> None:
    assert digest_of((b"ab", None, b"c", None)) != digest_of((b"a", None, b"bc", None))
    assert digest_of((b"ab", None)) == digest_of(b"ab")
