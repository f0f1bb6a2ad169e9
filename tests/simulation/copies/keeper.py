"""The keeper of a simulated slot's copy: a separate machine, reached over the same bad network as the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from photon.idregistry.api import Slot
from photon.joiner.copies.api import CopyAnswer, CopyBytes, CopyOf, Extension
from photon.joiner.copies.kept import KeptCopy
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.registry import Call, Message, ModelRegistry, Network

KEPT = Path("/dc/copies/origin/slot")
KEEPER = 1000  # stands for a keeper where the network expects a shard; each further slot adds one


class KeeperMachine:
    """One disk and one process on it; the process dies of any disk fault and restarts when it is next asked."""

    def __init__(self, random: Random, of: CopyOf, kept: type[KeptCopy]) -> None:
        self.disk = FaultyDisk(random)
        self.of = of
        self._random = random
        self._kept = kept
        self._running: KeptCopy | None = None
        self.deaths = 0
        self.accepted = 0

    def answer(self, what: str, row: tuple[Any, ...]) -> CopyAnswer | CopyBytes | None:
        """Returns the answer; ``None`` means the keeper died while answering."""
        try:
            kept = self.running()
            match what:
                case "copy-open":
                    return kept.open(*row)
                case "copy-look":
                    return kept.look()
                case "copy-read":
                    return kept.read(*row)
                case _:
                    self.accepted += 1
                    return kept.extend(*row)
        except PowerOff:
            self.stop(power=self._random.random() < 0.5)
        except OSError:
            self.stop(power=False)
        return None

    def running(self) -> KeptCopy:
        if self._running is None:
            kept = self._kept(self.disk, KEPT, self.of)
            kept.load()
            self._running = kept
        return self._running

    def stop(self, *, power: bool) -> None:
        """The process is killed, or its machine loses power."""
        self.deaths += 1
        self._running = None
        if power:
            self.disk.power_cut()
        else:
            self.disk.kill()

    def set_aside(self) -> None:
        """Sets aside a copy that is none, as an operator would."""
        self._running = None
        self.disk.put_back({})


class CopyNetwork(Network):
    """Also carries requests to keepers."""

    def __init__(self, model: ModelRegistry, random: Random, *, slow: float, **options: Any) -> None:
        """``slow``: share of the extensions that arrive long after they were requested, if at all."""
        super().__init__(model, random, **options)
        self.keepers: dict[str, KeeperMachine] = {}
        self._slow = slow

    def send(self, call: Call) -> Call:
        super().send(call)
        if call.what == "copy-extend" and self.faults and self._random.random() < self._slow:
            self.delay(call.messages)
        return call

    def delay(self, late: Sequence[Message]) -> None:
        """They arrive much later, when their callers no longer wait."""
        self.messages = [each for each in self.messages if each not in late]
        self.stragglers += [each for each in late if each not in self.stragglers]

    def _shard_of(self, call: Call, fields: tuple[Any, ...]) -> int:
        if call.what.startswith("copy"):
            return KEEPER + sorted(self.keepers).index(call.slot.name)
        if call.what in ("fence",):
            return int(fields[0])
        return super()._shard_of(call, fields)

    def _apply(self, call: Call, row: tuple[Any, ...]) -> Any:
        if call.what.startswith("copy"):
            return self.keepers[call.slot.name].answer(call.what, row)
        return super()._apply(call, row)

    def finish(self, call: Call) -> None:
        if not call.what.startswith("copy"):
            super().finish(call)
            return
        self.calls.remove(call)
        [message] = call.messages
        call.result = message.answers[0] if message.replies and message.answers is not None else None


class KeeperClient:
    """Implements ``joiner.copies.api.Keeper``."""

    def __init__(self, network: CopyNetwork, slot: Slot) -> None:
        self._network = network
        self._slot = slot

    async def _ask(self, what: str, *row: Any) -> Any:
        return await self._network.send(Call(what, self._slot, 0, [row]))

    async def open(self, of: CopyOf, incarnation: int, *, timeout: float) -> CopyAnswer | None:
        return await self._ask("copy-open", incarnation)

    async def look(self, of: CopyOf, *, timeout: float) -> CopyAnswer | None:
        return await self._ask("copy-look")

    async def extend(self, of: CopyOf, extension: Extension, *, timeout: float) -> CopyAnswer | None:
        return await self._ask("copy-extend", extension)

    async def read(self, of: CopyOf, log: int, number: int, offset: int, *, timeout: float) -> CopyBytes | None:
        return await self._ask("copy-read", log, number, offset)
