"""What a process says of itself becomes a fact, its clock against this one's within half a round trip."""

from __future__ import annotations

from photon.fleet.doctor.gathering import process_of
from photon.fleet.polling import Heard
from photon.fleet.processes import Process

TARGET = Process("east", "joiner", "east-1", "127.0.0.1:7101")
TEXT = """# HELP photon_build_info 1
photon_build_info{version="0.1.0"} 1.0
photon_clock_seconds 1.0000007e+09
process_open_fds 40.0
process_max_fds 1024.0
photon_eventstore_ambiguous_keys_total{join="a"} 2.0
photon_eventstore_ambiguous_keys_total{join="b"} 1.0
"""


def test_an_answer() -> None:
    said = process_of(Heard(TARGET, TEXT), 1_000_000_000.0, 1_000_000_000.5)
    assert (said.name, said.version, said.open_files, said.max_files) == ("joiner east-1", "0.1.0", 40.0, 1024.0)
    assert said.ahead_s is not None
    assert abs(said.ahead_s - 699.75) < 1e-3
    assert (said.error_s, said.ambiguous_keys) == (0.25, 3.0)


def test_silence_and_an_older_release() -> None:
    assert process_of(Heard(TARGET, problem="refused"), 1.0, 2.0).problem == "refused"
    older = process_of(Heard(TARGET, 'photon_build_info{version="0.0.9"} 1.0\n'), 1.0, 2.0)
    assert (older.ahead_s, older.version, older.problem) == (None, "0.0.9", "")
