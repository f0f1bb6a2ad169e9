"""The whole registry is lost under load and comes back from a backup: every click still comes out exactly once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from photon.lab.demo.check import check
from photon.lab.demo.deployment import Shape
from tests.integration.commands import drawn_seed
from tests.integration.registry_ops import Outcome, photon
from tests.integration.rig import READY_S, Rig

ROUNDS = 10 if os.environ.get("PHOTON_FULL") else 1
SHAPE = Shape(datacentres=("east",), joiners=2, round_trip_s=None, unmatched_after_s=3.0)


class RestoreRig(Rig):
    """Outputs are checked. A ledger takes events reread after a restore for duplicates, as
    docs/operations/registry.md says."""

    def verify(self) -> None:
        outputs = [place.output for place in self.demo.places.values()]
        assert check(outputs, self.generator.truth).problems == []

    async def operate(self, *arguments: str) -> Outcome:
        outcome = await photon("registry", *arguments, "--config", str(self.demo.deployment.file))
        print(arguments[0], outcome.out.strip())
        assert outcome.code == 0, outcome
        return outcome

    async def lose_the_registry_and_restore_it(self) -> None:
        """A backup under load; more is joined; then all replicas' disks are gone."""
        backup = self.demo.deployment.file.parent / "backup"
        await self.pause(1.0, 2.0)
        await self.operate("backup", str(backup))
        await self.pause(1.0, 2.0)
        names = self.supervisor.names()
        replicas = [name for name in names if name.startswith("registry")]
        joiners = [name for name in names if name.startswith("joiner")]
        for name in [*joiners, *replicas]:
            self.supervisor.kill(name, hold=True)
        await self._gone([*joiners, *replicas])
        settings = self.demo.deployment.settings
        for replica in settings.registry.replicas.values():
            shutil.rmtree(self.demo.deployment.file.parent / replica.directory)
        await self.operate("restore", str(backup), "--yes")
        for name in replicas:
            self.supervisor.release(name)
        said = (await self.operate("restore", "--register-again", "--yes", "-o", "json")).json()
        assert all(each["taken"] == 0 for each in said)
        assert sum(each["registered"] for each in said) > 0
        await self.operate("restore", "--open", "--yes")
        for name in joiners:
            self.supervisor.release(name)
        await self.supervisor.ready(READY_S)


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_every_click_exactly_once_though_the_registry_comes_from_a_backup(tmp_path: Path, round_: int) -> None:
    rig = RestoreRig(tmp_path, drawn_seed(), seconds=6.0, shape=SHAPE)
    await rig.run(lambda _: rig.lose_the_registry_and_restore_it())
