"""Carries out each runbook of docs/operations as written, under traffic, on a deployment of real processes.

In the end each event has come out exactly once, for readers who have read all of it. A deployment on which a runbook
failed is not reused: the next one begins with a new deployment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import drawn_seed
from tests.integration.operations.events import EVENTS
from tests.integration.operations.runbook import DIRECTORY, steps
from tests.integration.operations.site import TOGETHER, WITH_COPIES, WITHOUT_COPIES, Site

# In this order; lose-a-datacentre leaves less than before, so the next one starts from scratch.
EACH = (
    "start",
    "reshard",
    "restore-a-backup",
    "lose-state",
    "upgrade",
    "rotate-certificates",
    "replace-a-replica",
    "lose-a-datacentre",
)
RUNBOOKS = [(TOGETHER, name) for name in EACH] + [(WITHOUT_COPIES, name) for name in EACH]
RUNBOOKS.append((WITH_COPIES, "lose-a-datacentre"))
# The others restart most of the deployment, some of it several times: they are in the long rounds.
ALWAYS = [(TOGETHER, name) for name in ("start", "reshard", "restore-a-backup")]
ALONE = "correct-records"  # needs no deployment: tests/integration/test_corrections.py runs it
LONG = pytest.mark.full
TIMEOUT_S = 1800


class Sites:
    """One deployment at a time."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._site: Site | None = None

    def get(self, kind: str | None = None) -> Site:
        """A deployment of this kind; ``None`` means the existing one."""
        if self._site is not None and (self._site.broken or kind not in (None, self._site.kind)):
            if not self._site.broken:
                self._site.ends()
            self.close()
        if self._site is None:
            self._site = Site(self._factory.mktemp("runbooks"), drawn_seed(), kind or TOGETHER)
            self._site.traffic.start()
            carry_out(self._site, "start")
        return self._site

    def close(self) -> None:
        if self._site is not None:
            self._site.close()
            self._site = None


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    sites = Sites(tmp_path_factory)
    yield sites
    sites.close()


def carry_out(site: Site, name: str) -> None:
    path = DIRECTORY / f"{name}.md"
    site.carry_out(path.name, steps(path.name, path.read_text()), EVENTS)


def test_every_runbook_is_here() -> None:
    written = {path.stem for path in Path(DIRECTORY).glob("*.md")} - {"README", "registry", "change-a-join", ALONE}
    assert written == set(EACH)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("kind", "name"), [pytest.param(*each, marks=() if each in ALWAYS else LONG) for each in RUNBOOKS]
)
def test_runbook(sites: Sites, kind: str, name: str) -> None:
    site = sites.get(kind)
    if name != "start":  # the start of every deployment
        carry_out(site, name)


@pytest.mark.timeout(TIMEOUT_S)
def test_in_the_end_each_event_has_come_out_exactly_once(sites: Sites) -> None:
    sites.get().ends()
