"""This release goes on with the data of earlier ones, each event once; data of later ones is refused in one line."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.integration.commands import photon as command
from tests.integration.commands import running
from tests.integration.upgrade.baseline import BASELINES, unpacked


def _release(archive: Path) -> tuple[int, ...]:
    return tuple(int(each) for each in archive.name.removesuffix(".tar.xz").split("."))


ARCHIVES = sorted(BASELINES.glob("*.tar.xz"), key=_release)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_an_earlier_release_s_data_is_gone_on_with(archive: Path) -> None:
    with unpacked(archive) as site:
        waited = site.waiting()
        assert waited
        assert sorted(site.joined()) == sorted(site.joinable().items())
        with site.running():
            site.write(30, without=2)
            site.settle()
        site.check()
        assert {f"c{n:05d}" for n in waited} <= {event_id for event_id, _ in site.joined()}


def _later_database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()


def _later_file(offset: int) -> Callable[[Path], None]:
    """With a greater version in the byte there."""

    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[offset] = 99
        path.write_bytes(data)

    return change


def _later_json(path: Path) -> None:
    path.write_text(path.read_text().replace('"version":', '"version":9'))


PIPELINE = ("serve", "pipeline", "--datacentre", "east")


@pytest.mark.skipif(not ARCHIVES, reason="no release's data is kept yet: make baseline")
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("tables.db", _later_database, ("table", "scan", "totals")),
        ("r1/replica", _later_file(8), ("serve", "registry", "r1")),
        ("east/state/dispatcher.db", _later_database, PIPELINE),
        ("east/state/slots/east-1/slot.json", _later_json, PIPELINE),
    ],
)
def test_data_of_a_later_release_is_refused_in_one_line(
    name: str, change: Callable[[Path], None], words: tuple[str, ...]
) -> None:
    with unpacked(ARCHIVES[-1]) as site:
        path = site.base / name
        change(path)
        # A pipeline looks at its state once it has a registry.
        registry = running("serve", "registry", "r1", "--config", site.file, log=site.base / "r1.log")
        with registry if words == PIPELINE else nullcontext():
            refused = command(*words, "--config", site.file)
    assert refused.code != 0
    assert "Traceback" not in refused.err
    [line] = [each for each in refused.err.splitlines() if each.startswith("photon: ") and path.name in each]
    assert "version" in line or "format" in line
