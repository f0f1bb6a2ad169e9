"""Schedules of slots whose output is copied; now and then one is lost permanently and retired against its copy."""

from __future__ import annotations

from random import Random
from typing import Any

from photon.adapters.envelope_reader import lacking_pairs, pair_of
from photon.config.disk import Disk
from photon.idregistry.api import Answer, Slot
from photon.joiner.api import Outcome
from photon.joiner.copies.api import CopyOf, Status
from photon.outputs.published import read_slot
from tests.simulation.copies.keeper import KEEPER, KEPT, CopyNetwork, KeeperMachine
from tests.simulation.copies.operator import Operator
from tests.simulation.copies.process import CopyProcess, CopySite, CopyVariant
from tests.simulation.joiner.process import OUTPUT, STATE, Process, Site
from tests.simulation.joiner.tail import Tail, _OneSlot
from tests.simulation.joiner.world import World
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.registry import Entry, Message, ModelRegistry
from tests.simulation.world.violation import Violation, of_seed

FOR_EVER_S = 1e9
STEPS = 500


class FencingRegistry(ModelRegistry):
    """Refuses inserts of a fenced slot, in each shard from the moment the shard has heard of the fence."""

    def __init__(self, shards: int, *, checks_stale: bool) -> None:
        super().__init__(shards, checks_stale=checks_stale)
        self.fences: list[set[str]] = [set() for _ in range(shards)]

    def insert(self, slot: Slot, caller: int, digest: bytes, *row: Any) -> tuple[Answer, Entry | None]:
        if slot.name in self.fences[self.shard_of(digest)]:
            return Answer.FENCED, None
        return super().insert(slot, caller, digest, *row)


class CopyTail(Tail):
    """A reader that continues in the sealed copy."""

    def moves(self, disk: Disk) -> None:
        self._disk, self._place = disk, _OneSlot(OUTPUT, KEPT)
        self._reader = self._resumed()

    def read_on(self) -> None:
        """Reads all that is published."""
        before = None
        while before != self._cursor and not self.trouble:
            before = self._cursor
            self.read()


class CopyWorld(World):
    """A schedule. ``run`` raises Violation."""

    def __init__(self, seed: int, variant: CopyVariant, *, story: bool = False) -> None:
        super().__init__(seed, variant, story=story)
        random = self.random
        self.copy_variant = variant
        self.wait_s = random.choice((2.0, 20.0, FOR_EVER_S))
        self.required = self.wait_s == FOR_EVER_S
        self.request_bytes = random.choice((1, 300, 1000, 1 << 20))
        self.model = FencingRegistry(len(self.model.shards), checks_stale=random.random() < 0.5)
        self.network = self.copy_network = CopyNetwork(
            self.model,
            random,
            slow=random.choice(variant.slow),
            too_new=random.choice((0.0, 0.05)),
            late=variant.late_inserts,
        )
        self.calm = random.choice((0.0, 0.6, 0.85))
        self.ships = random.choice(variant.ships)
        self.witnesses = random.choice((0.1, 1.0, 4.0))
        self.copies = random.random() < variant.puts_back
        self.ids = [b"id-%d" % number for number in range(random.randint(4, 14))]
        doubled = [each for each in self.ids if random.random() < 0.3]
        self.lines = list(enumerate(self.ids + doubled))
        self.to_come = [line for line, _ in self.lines]
        random.shuffle(self.to_come)
        self.copied: list[CopySite] = []
        for number in range(2):
            name = f"dc{number}"
            slot = Slot(f"s{number}", name)
            keeper = KeeperMachine(random, CopyOf(name, slot.name), variant.kept)
            site = CopySite(name, FaultyDisk(random), slot, keeper=keeper)
            self.copied.append(site)
            self.network.keepers[slot.name] = keeper
        self.sites: list[Site] = list(self.copied)
        self.tails = {
            site.name: CopyTail(site.disk, OUTPUT, STATE, Random(f"{seed} {site.name}")) for site in self.sites
        }
        self.loses_at = random.randrange(60, 300) if random.random() < variant.loses else STEPS
        self.operator: Operator | None = None
        self.steps = 0

    # -- a run -------------------------------------------------------------------------------------------------
    def _step(self) -> None:
        self.steps += 1
        if self.to_come and self.random.random() < 0.06:
            self._comes()
        if self.steps > self.loses_at and self.operator is None:
            site = self.copied[0]
            if any(site.durable_seen.values()) or self.random.random() < 0.01:
                self._lose(site)
        if self.operator is not None and self.random.random() < 0.2:
            self._retire(self.operator)
        super()._step()

    def _comes(self) -> None:
        """A line is read by the dispatcher of each running datacentre."""
        line = self.to_come.pop()
        for site in self.copied:
            if not site.lost:
                site.pending.add(line)

    def _quiet_step(self) -> None:
        while self.to_come:
            self._comes()
        super()._quiet_step()
        if self.operator is not None:
            self._retire(self.operator)

    def _retire(self, operator: Operator) -> None:
        """One step of a retirement; when all is done, a process only believed lost hears of it at some time."""
        operator.act()
        if operator.done and self.random.random() < 0.03:
            self.gone(operator.site)

    def _start(self, site: Site) -> None:
        assert isinstance(site, CopySite)
        self.say(f"{site.name} starts")
        process = CopyProcess(self, site)
        site.processes.append(process)
        process.step_opening()

    def _act(self, site: Site) -> None:
        assert isinstance(site, CopySite)
        if not (site.lost or (site.cut_off and not site.processes)):
            super()._act(site)

    def _act_of(self, site: Site, process: Process) -> None:
        assert isinstance(process, CopyProcess)
        chance = self.random.random()
        if chance < self.ships:
            process.ship()
        elif chance < self.ships + 0.05 * (self.witnesses - 1) and process.serves:
            process.witness()
        else:
            super()._act_of(site, process)

    def _fault(self) -> None:
        random = self.random
        if self.copies and random.random() < 0.15:
            self._copy(random.choice(self.copied))
            return
        if random.random() < self.calm:
            self.network.down -= set(range(len(self.model.shards)))
            return
        if random.random() < 0.25:
            at = random.randrange(len(self.copied))
            site = self.copied[at]
            kind = random.randrange(4)
            if kind == 0:
                self.say(f"the keeper of {site.name} {'is back' if KEEPER + at in self.network.down else 'is away'}")
                self.network.down ^= {KEEPER + at}
            elif kind == 1:
                self.say(f"the keeper of {site.name} dies")
                site.keeper.stop(power=self.power_cuts and random.random() < 0.5)
            elif kind == 2:
                site.keeper.disk.crash_after(random.randint(1, 20))
            elif self.sync_failures:
                site.keeper.disk.fail_sync_after(random.randint(1, 4))
            return
        super()._fault()

    def run(self, steps: int = STEPS) -> None:
        super().run(steps)
        for site in self.copied:
            self._check_copy(site)

    # -- what befalls ------------------------------------------------------------------------------------------
    def no_copy(self, process: CopyProcess) -> None:
        """The shipper has found that the copy is no prefix of the output, or cannot continue."""
        site, why = process.site, process.shipper.trouble if process.shipper is not None else ""
        if process.in_contact or not site.put_back:
            raise Violation(f"{site.name}: the copy does not follow its slot: {why}")
        self.say(f"{site.name}: {why}")
        site.keeper.set_aside()
        site.set_aside += 1

    def taken(self, site: CopySite) -> None:
        """A start found less in its output than its copy has."""
        if not site.put_back:
            raise Violation(f"{site.name}: the copy does not follow its slot: it had bytes that were not durable")

    def finishes(self, site: CopySite, name: str) -> None:
        """Moving away a final file must not take it from the copy."""
        if self._kept(site).get(name) != site.disk.read(OUTPUT / name):
            raise Violation(f"{site.name}: {name} becomes final before its copy has it")

    def _copy(self, site: Site) -> None:
        assert isinstance(site, CopySite)
        if site.lost or site.cut_off:
            return
        shipped = self._under_way(site)
        super()._copy(site)
        # A request to the keeper may arrive while the older copy is at work: the keeper must know better by then.
        self.copy_network.delay(shipped)

    def _under_way(self, site: CopySite) -> list[Message]:
        """Requests of this site that the keeper has not heard yet, or will hear again."""
        every = self.network.messages + self.network.stragglers
        return [each for each in every if each.call.what == "copy-extend" and each.call.slot == site.slot]

    def _rot(self, site: Site) -> None:
        assert isinstance(site, CopySite)
        if not site.lost:
            super()._rot(site)

    def _lose(self, site: CopySite) -> None:
        """Its disk is permanently gone, or only believed to be; then its process runs on until it hears of it."""
        if site.newest is not None or not site.disk.exists(STATE):
            return
        self.operator = Operator(self, site)
        if self.random.random() < self.copy_variant.cuts_off and any(
            each.alive and each.core is not None for each in site.processes
        ):
            self.say(f"{site.name} is believed to be lost")
            site.cut_off = True
            self.copy_network.delay(self._under_way(site))
        else:
            self.gone(site)

    def gone(self, site: CopySite) -> None:
        """Nobody reads it any longer."""
        if site.lost:
            return
        self._read(site)
        self._end(site, power=False)
        self.say(f"{site.name} is permanently lost")
        self._check_ahead(site)
        self.copy_network.delay(self._under_way(site))
        site.lost = True
        site.disk.put_back({})
        site.pending.clear()
        for line, _ in self.lines:
            site.outcome.setdefault(line, Outcome.LATE)
        if self._retired(site):
            self._move(site)

    def _check_ahead(self, site: CopySite) -> None:
        """Without a fall-back no reader was shown what the copy does not have."""
        if site.fell_back:
            self.say(f"{site.name} has shown more than its copy has")
            return
        kept = self._kept(site)
        for name, seen in site.durable_seen.items():
            if not kept.get(name, b"").startswith(seen):
                raise Violation(f"{site.name}: a reader of {name} is ahead of the copy")

    def _kept(self, site: CopySite) -> dict[str, bytes]:
        """Data the keeper has acknowledged and would keep in a power cut, by plain name."""
        disk = site.keeper.disk
        if not disk.exists(KEPT / "copy.json"):
            return {}
        site.keeper.stop(power=False)
        found: dict[str, bytes] = {}
        site.keeper.running()
        for directory in ("joined", "filtered", "unmatched", "rejected"):
            for name in disk.names(KEPT / "output" / directory):
                found[f"{directory}/{name}"] = disk.read(KEPT / "output" / directory / name)
        return found

    # -- readers, and the end ----------------------------------------------------------------------------------
    def _read(self, site: Site) -> None:
        assert isinstance(site, CopySite)
        if site.lost:
            return
        super()._read(site)
        for name, seen in site.durable_seen.items():
            if lacking_pairs(seen) is not None:
                raise Violation(f"{site.name}: shown in part: {name} ends between the pairs of an event")

    def published(self, site: CopySite) -> None:
        """The operator has published the sealed copy. A cut-off process does not know."""
        if site.lost:
            self._move(site)

    def _move(self, site: CopySite) -> None:
        """Its readers continue in the sealed copy."""
        sealed = self._sealed(site)
        for name, seen in site.durable_seen.items():
            if not site.fell_back and not sealed.get(name, b"").startswith(seen):
                raise Violation(f"{site.name}: {name} changed under its readers")
        tail = self.tails[site.name]
        assert isinstance(tail, CopyTail)
        tail.moves(site.keeper.disk)

    def _counts(self) -> dict[bytes, int]:
        """The readers' data; of a lost slot, the output that its reader has."""
        lost = [site for site in self.copied if site.lost]
        live: list[Site] = [site for site in self.copied if not site.lost]
        self.sites, every = live, self.sites
        try:
            counts = super()._counts()
        finally:
            self.sites = every
        for site in lost:
            tail = self.tails[site.name]
            assert isinstance(tail, CopyTail)
            tail.read_on()
            sealed = self._sealed(site)
            has = [data for place, data in sorted(tail.has.items(), key=lambda each: each[0].kind)]
            for text in sealed.values() if site.fell_back else has:
                lacking = 0
                for line in text.splitlines(keepends=True):
                    event_id, pair = self._id_of(line, site.name), pair_of(line)
                    number, of = pair or (1, 1)
                    if number != (1 if not lacking else of - lacking + 1):
                        raise Violation(f"written in part: {event_id.decode()}, pair {number} of {of} in the copy")
                    lacking = of - number
                    counts[event_id] += not lacking
                if lacking:
                    raise Violation(f"written in part: lost are {lacking} pairs at the end of the copy")
        return counts

    def _sealed(self, site: CopySite) -> dict[str, bytes]:
        """Published part of a sealed copy, in the order of its files; empty if there is none."""
        disk = site.keeper.disk
        found: dict[str, bytes] = {}
        for file in read_slot(disk, KEPT).files if self._retired(site) else ():
            path = KEPT / "output" / file.name
            found[file.name] = disk.read(path, 0, file.length) if disk.exists(path) else b""
            if len(found[file.name]) < file.length:
                raise Violation(f"{site.name}: {file.name} changed under its readers: it was published")
        return found

    def _retired(self, site: CopySite) -> bool:
        return site.keeper.disk.exists(KEPT / "retired.json")

    def _check_tail(self, site: Site) -> None:
        assert isinstance(site, CopySite)
        if not site.lost:
            super()._check_tail(site)
            return
        published: dict[str, bytes] = {}
        for name, data in self._sealed(site).items():
            kind = name.partition("/")[0]
            published[kind] = published.get(kind, b"") + data
        tail = self.tails[site.name]
        if not site.fell_back and (wrong := tail.check(published)):
            raise Violation(f"{site.name}: {wrong}")

    def _at_rest(self) -> bool:
        if self.operator is not None and not (self.operator.done and self.operator.site.lost):
            return False
        every = self.sites
        self.sites = [site for site in self.copied if not site.lost]
        try:
            return super()._at_rest() and all(self._caught_up(site) for site in self.copied if not site.lost)
        finally:
            self.sites = every

    def _caught_up(self, site: CopySite) -> bool:
        process = next((process for process in site.processes if process.alive), None)
        assert isinstance(process, CopyProcess)
        shipper = process.shipper
        return (
            shipper is not None
            and shipper.ends is not None
            and not shipper.fallback
            and not shipper.behind(process.store.local_files)
            and process.keeper is not None
            and process.keeper.end == process.store.witness
        )

    def _check_copy(self, site: CopySite) -> None:
        """At rest the copy equals the output."""
        if site.lost:
            return
        kept = self._kept(site)
        output = {
            f"{directory}/{name}".removesuffix(".gz"): self._content(site, directory, name)
            for directory, name in self._files(site)
        }
        wrong = [name for name, data in output.items() if kept.get(name, b"") != data]
        if wrong:
            raise Violation(f"{site.name}: the copy of {', '.join(wrong)} is another")
        if site.keeper.running().look().status is not Status.OK:
            raise Violation(f"{site.name}: the copy of a live slot is sealed")


def run_seed(seed: int, variant: CopyVariant | None = None, *, story: bool = False) -> CopyWorld:
    """Runs one schedule; raises Violation, with the seed in it."""
    world = CopyWorld(seed, variant or CopyVariant(), story=story)
    with of_seed(seed, world.story):
        world.run()
    return world
