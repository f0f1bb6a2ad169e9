"""A foreign log is searched for an event as the dispatcher would read it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from photon.adapters.join_adapters import adapter_of
from photon.config.loader import load
from photon.fleet.explain import dispatchers as searching
from photon.fleet.explain.dispatchers import ForeignLogs, search_logs
from photon.fleet.explain.evidence import Evidence
from photon.fleet.explain.question import Budget, question_of
from tests.deployments import join

CONFIG = join()


def click(n: int, more: str = "") -> bytes:
    return f'{{"id":"c{n:04d}","q":"q{n}","t":{n}{more}}}\n'.encode()


class Site:
    """A directory of foreign logs."""

    def __init__(self, base: Path) -> None:
        (base / "photon.toml").write_text(CONFIG)
        settings = load(base / "photon.toml", environment={}, flags=())
        self.directory = base / "clicks"
        self.directory.mkdir()
        self.read: dict[str, int] | None = None
        self._logs = ForeignLogs(
            self.directory, ("**/*",), adapter_of(settings, "clicks", base), 1 << 20, lambda: self.read
        )

    def search(self, text: str) -> Evidence:
        return search_logs(self._logs, question_of(text), Budget(60.0, lambda: 0.0))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("chunk", [7, 4 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_a_record_is_found_anywhere(site: Site, monkeypatch: pytest.MonkeyPatch, chunk: int, packed: bool) -> None:
    monkeypatch.setattr(searching, "CHUNK_BYTES", chunk)
    data = b"".join(click(n) for n in range(50)).removesuffix(b"\n")
    name = "c.log.gz" if packed else "c.log"
    (site.directory / name).write_bytes(gzip.compress(data) if packed else data)
    for n in (0, 17, 49):
        (found,) = site.search(f"c{n:04d}").in_logs
        assert found.offset == sum(len(click(before)) for before in range(n))
        assert (found.event_id, found.key) == (b"c%04d" % n, b"q%d" % n)
        assert found.event_time_ns == n * 10**9
        assert found.read_to is None


def test_by_its_place(site: Site) -> None:
    (site.directory / "c.log").write_bytes(click(10) + click(11))
    (found,) = site.search(f"c.log:{len(click(10))}").in_logs
    assert found.event_id == b"c0011"
    assert not site.search("c.log:3").in_logs
    assert not site.search("c.log:999").in_logs


def test_an_id_within_another_record_is_not_it(site: Site) -> None:
    (site.directory / "c.log").write_bytes(click(10, ',"see":"c0011"'))
    evidence = site.search("c0011")
    assert not evidence.in_logs
    assert (evidence.searched[0].files, evidence.searched[0].why) == (1, "")


def test_a_record_that_cannot_be_read_says_why(site: Site) -> None:
    (site.directory / "c.log").write_bytes(click(10) + b'{"id":"c0011","q":"q11"}\n')
    (found,) = site.search("c0011").in_logs
    assert found.reason
    assert found.event_id is None


def test_a_directory_that_is_gone_is_said(site: Site) -> None:
    site.directory.rmdir()
    (searched,) = site.search("c0011").searched
    assert str(site.directory) in searched.why
