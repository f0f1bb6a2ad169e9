"""The recipe itself: what `make hbase` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.hbase.standalone import CannotRun, Ports, Standalone, answers


def test_it_answers_and_is_the_one_of_its_directory(hbase: Standalone) -> None:
    assert answers("127.0.0.1", hbase.ports.thrift)
    again = Standalone(hbase.directory, Path(), hbase.ports)  # as `make hbase-down` finds it
    assert again.pid("master") == hbase.pid("master") is not None
    assert Standalone(hbase.directory.parent, Path(), hbase.ports).pid("master") is None


def test_a_second_one_on_its_ports_is_refused(hbase: Standalone, tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="is already running"):
        hbase.start()
    other = Standalone(tmp_path, Path(), hbase.ports)
    other.configure()
    with pytest.raises(CannotRun, match=f"port {hbase.ports.master}, which"):
        other.start()


def test_nobody_answers_at_a_free_port() -> None:
    assert not answers("127.0.0.1", 1)
    assert Ports().host == "127.0.0.1"
