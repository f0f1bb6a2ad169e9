"""One seeded schedule: joiners in slots, dispatchers, verifiers and readers over simulated disks, registry, network.

The core, the slot and the verifier are the production ones; the world does what the asyncio shell does, in every
order, and stops a process between any two of its steps or in the middle of a disk operation.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from photon.adapters.bounds import Bounds, bounded_adapter
from photon.adapters.contract import Adapter, Filtered, ForeignHeader, Joined, LogFile, Matching
from photon.adapters.envelope import Envelope
from photon.adapters.envelope_reader import EnvelopeError, pair_of, read_line
from photon.batch.events import Events
from photon.batch.records import Records
from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryRecord
from photon.idregistry.api import Digester, Slot
from photon.joiner.api import ForeignEvent, Outcome
from photon.joiner.slot.identity import OutOfStep, SlotRefused
from photon.joiner.slot.output import OutputDamaged
from photon.joiner.slot.redo_log import RedoLogDamaged
from photon.joiner.slot.slot import Ages
from photon.joiner.verdicts import Decided, Judge, envelope_lines, rows_of
from photon.outputs.log.format import ManifestEntry
from photon.verifier.verifier import VerifierDamaged
from tests.simulation.joiner.process import OUTPUT, STATE, Asked, Process, Site, Variant
from tests.simulation.joiner.tail import Tail
from tests.simulation.world.disk import Copy, PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.registry import CONFIG_CALLS, ModelRegistry, Network
from tests.simulation.world.seeds import placeless
from tests.simulation.world.violation import Violation, of_seed

QUIET_STEPS_MAX = 1500


class PairAdapter(Adapter):
    """Joins everything except lines that say otherwise."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(record, 0)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    @placeless
    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        if primary.endswith(b"f"):
            return Filtered("by rule")
        if primary.endswith(b"r"):
            raise ValueError("no such thing")
        return super().join(foreign, foreign_file, primary, primary_file)


class TimedAdapter(PairAdapter):
    """``line-N`` comes this much later than its primary event."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return ForeignHeader(record, int(record[5:]))

    def primary_time(self, record: bytes, file: LogFile) -> int:
        return 0


LOG = LogFile("clicks.log")


def manifest_in(data: bytes) -> dict[str, ManifestEntry]:
    """Plain name -> line of a slot's manifest; a torn last one does not count."""
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return {entry.name: entry for entry in (msgspec.json.decode(line, type=ManifestEntry) for line in lines)}


class World:
    """A schedule. ``run`` raises Violation."""

    def __init__(self, seed: int, variant: Variant, *, story: bool = False) -> None:
        self.random = random = Random(seed)
        self.variant = variant
        self.seed = seed
        self.quiet_steps = 0
        self.story: list[str] | None = [] if story else None
        self.now = 0.0
        self.faults = True
        self.loss = random.choice((0.0, 0.2, 0.5))
        self.power_cuts = random.random() < 0.6
        self.kills = random.random() < 0.8
        self.sync_failures = random.random() < 0.4
        self.boundaries = random.random() < 0.2
        self.roll_bytes = random.choice((1, 400, 1500, 100_000))
        self.segment_bytes = random.choice((1, 800, 100_000))
        self.digester = Digester(b"key", "clicks")
        self.model = variant.registry(random.choice((1, 2, 3)), checks_stale=random.random() < 0.5)
        self.network = Network(self.model, random, too_new=random.choice((0.0, 0.05, 0.3)), late=variant.late_inserts)
        bounded = bounded_adapter(TimedAdapter({}), Bounds(2, 0), "joiner")
        adapter = bounded if variant.bounded else PairAdapter({})
        adapter.matching = Matching("all") if variant.sets else adapter.matching
        # Number of primaries an event has, for each look-up: nobody relies on its being the same.
        self.sets = Random(f"{seed} sets")
        self.settings = Random(f"{seed} settings")
        self.forms = Random(f"{seed} forms")
        self.compressed = self.forms.choice((0.0, 0.5, 1.0))  # share of the starts that compress final files
        self.adapter = adapter
        self.judge = Judge(adapter, check_payloads=False)
        self.build = envelope_lines(Envelope())
        self.ids = [b"id-%d" % number for number in range(random.randint(2, 7))]
        doubled = [each for each in self.ids if random.random() < 0.4]
        self.lines = [(number, each) for number, each in enumerate(self.ids + doubled)]
        self.copies = random.random() < 0.3
        # Chooses the part of a copy that is restored; separate, so that the rest of the schedule does not change.
        self.ages = Random(f"{seed} ages")
        # The registry lies next to the slot, as in ``photon join``, and is restored with it or alone.
        self.own_registry = False
        self.rots = random.random() < variant.rots
        self.sites: list[Site] = []
        for number in range(random.choice((1, 1, 2))):
            name = f"dc{number}"
            site = Site(name, FaultyDisk(random), Slot(f"s{number}", name))
            site.pending = {number for number, _ in self.lines}
            self.sites.append(site)
        if self.copies and variant.mixes and len(self.sites) == 1 and self.ages.random() < variant.own_registry:
            # `photon join` never continues without a damaged log on its own: refused for good, it shows nothing.
            self.own_registry, self.boundaries, self.rots = True, False, False
        self.tails = {site.name: Tail(site.disk, OUTPUT, STATE, Random(f"{seed} {site.name}")) for site in self.sites}

    def say(self, what: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.now:9.2f} {what}")

    def nonce(self) -> bytes:
        return self.random.randbytes(16)

    # -- a run -------------------------------------------------------------------------------------------------
    def run(self, steps: int = 250) -> None:
        for _ in range(steps):
            self.now += self.random.choice((0.0, 0.01, 0.1, 1.0))
            self._step()
        self.say("faults end")
        self.faults = self.network.faults = False
        self.loss = 0.0
        self.network.down.clear()
        for site in self.sites:
            site.disk.crash_after(None)
            site.disk.fail_sync_after(0)
        for step in range(QUIET_STEPS_MAX):
            self.now += 0.1
            if self._at_rest():
                self.quiet_steps = step
                break
            self._quiet_step()
        else:
            self._check_twice(self._counts())
            raise Violation(f"not at rest: {self._unrest()}")
        self._check()

    def _step(self) -> None:
        random = self.random
        kind = random.random()
        if kind < 0.12:
            self._fault()
        elif kind < 0.40:
            self.network.deliver_one()
        elif kind < 0.45:
            self._read(random.choice(self.sites))
        elif kind < 0.46:
            self._reread(random.choice(self.sites))
        else:
            self._act(random.choice(self.sites))

    def _quiet_step(self) -> None:
        while self.network.deliver_one():
            pass
        for site in self.sites:
            self._act(site)
            self._read(site)
            self._reread(site)

    def _act(self, site: Site) -> None:
        """Some step of some process of this site, or the start of one."""
        if not any(process.alive for process in site.processes):
            self._guard(site, self._start, site)
            return
        process = self.random.choice([process for process in site.processes if process.alive])
        self._guard(site, self._act_of, site, process)

    def _start(self, site: Site) -> None:
        self.say(f"{site.name} starts")
        process = Process(self, site)
        site.processes.append(process)
        process.step_opening()

    def _act_of(self, site: Site, process: Process) -> None:
        random = self.random
        calls = [call for call in process.calls() if self.network.settled(call) or self.faults]
        if calls and random.random() < 0.4:
            call = random.choice(calls)
            if self.network.settled(call) or random.random() < 0.3:
                self.network.finish(call)
                process.resume(call)
                return
        if process.core is None or process.opening is not None:
            return
        choice = random.random()
        if choice < 0.2:
            self._submit(site, process)
        elif choice < 0.4:
            process.redo_work()
        elif choice < 0.6:
            process.output_work(sync=process.sync_wanted or random.random() < 0.3)
        elif choice < 0.63:
            process.publish_redone()
        elif choice < 0.68:
            process.recover()
        elif choice < 0.78:
            process.do(process.serving.tick(self.now))
        elif choice < 0.88:
            process.verify()
        elif choice < 0.93:
            process.witness()
        elif choice < 0.97:
            process.maintain()
        elif random.random() < 0.3:
            process.store.roll_output()

    def _guard(self, site: Site, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except PowerOff:
            self._end(site, power=self.power_cuts and self.random.random() < 0.5)
        except (SlotRefused, RedoLogDamaged, OutputDamaged, VerifierDamaged) as refusal:
            opened = self._newest_of(site) > site.newest_incarnation  # in the older copy: no other can be any more
            other_age = isinstance(refusal, OutOfStep) and (site.newest is None or opened)
            if site.rotted and (other_age or isinstance(refusal, RedoLogDamaged)):
                self.say(f"{site.name}: {refusal}, and that is accepted")
                self._end(site, power=False)
                site.accepts_damage = True
                return
            other_log = isinstance(refusal, RedoLogDamaged | OutOfStep) and not self.own_registry
            if site.newest is not None and other_log and not site.accepts_damage and self.ages.random() < 0.5:
                self.say(f"{site.name}: {refusal}, and what stands in the output is kept")
                self._end(site, power=False)
                site.accepts_damage = True
                return
            if not isinstance(refusal, SlotRefused | RedoLogDamaged) or site.newest is None:
                raise Violation(f"{site.name}: {refusal}") from refusal
            self.say(f"{site.name} is an older copy and refused ({refusal}); the newest disk is put back")
            self._replace_disk(site, site.newest)
            if self.own_registry:
                self._put_registry(site.newest_registry)
            site.newest, site.accepts_damage = None, False
        except OSError as error:
            self.say(f"{site.name}: {error}")
            self._end(site, power=False)

    def _submit(self, site: Site, process: Process) -> None:
        random = self.random
        done = [number for number, _ in self.lines if number not in site.pending]
        lines = [number for number in sorted(site.pending) if random.random() < 0.5]
        if self.faults:
            lines += [number for number in done if random.random() < 0.1]
            lines += [number for number in lines if random.random() < 0.1]
        if not lines:
            return
        random.shuffle(lines)
        core = process.serving
        events = Events.of([self._event(site, number) for number in lines])
        decided = self.judge.decide(
            events, self._found(len(events)), core.outstanding if random.random() < 0.5 else set()
        )
        self.adapter.unmatched_inline = self.variant.inline and self.settings.random() < 0.6
        self.judge.inline(events, decided)
        if not self.variant.unique_ids:
            decided = self._without_uniqueness(events)
        order = decided.order().tolist()
        if not order:
            return
        token = core.take_token()
        rows = rows_of(events, decided, self.build(events, decided, token, int(self.now * 1e9)), token)
        frame, instructions = core.submit(rows, self.now + random.choice((0.0, 1.0, 10.0)))
        process.asked[frame] = Asked(lines, events, decided)
        self.say(f"{site.name} logs frame {frame}: lines {[lines[row] for row in order]} under {token:x}")
        process.do(instructions)

    def _without_uniqueness(self, events: Events) -> Decided:
        decided = Decided.of(len(events))
        for row in range(len(events)):
            decided.add_undone(row, 3, "absent")  # type: ignore[arg-type]
        return decided

    def _event(self, site: Site, line: int) -> ForeignEvent:
        event_id = self.lines[line][1]
        time = int(event_id[3:])
        record = b"line-%d" % line
        event = ForeignEvent(event_id, self.digester.digest(event_id), time, b"k", record, LOG, 100 * line, 0)
        return event._replace(generation=site.generations.get(event_id, 0))

    def _reread(self, site: Site) -> None:
        """The dispatcher reads the list of reopened ids, and their lines again."""
        for digest, generation in self.model.reopened().items():
            for number, event_id in self.lines:
                if self.digester.digest(event_id) == digest:
                    site.pending.add(number)
                    site.generations[event_id] = generation

    def _found(self, n: int) -> EventLookUps:
        random = self.random
        answers = [
            random.choice((LookUpCode.FOUND, LookUpCode.FOUND, LookUpCode.ABSENT, LookUpCode.NOT_YET))
            for _ in range(n)
        ]
        if self.variant.sets:
            found = [answer is LookUpCode.FOUND for answer in answers]
            counts = np.array([self.sets.randint(1, 4) for each in found if each], np.uint32)
            alike = [PrimaryRecord(b"k", LogFile("payments.log"), at) for count in counts for at in range(count)]
            return EventLookUps(bytes(answers), Records.of(alike), {}, counts)
        record = PrimaryRecord(b"k", LogFile("queries.log"), 0)
        return EventLookUps.of(answers, [record if answer is LookUpCode.FOUND else None for answer in answers])

    # -- faults ------------------------------------------------------------------------------------------------
    def _fault(self) -> None:
        random = self.random
        site = random.choice(self.sites)
        if self.copies and random.random() < 0.15:
            self._copy(site)
            return
        if self.rots and random.random() < 0.25:
            self._rot(site)
            return
        kind = random.randrange(9)
        if kind == 0 and self.kills:
            self._end(site, power=False)
        elif kind == 1 and self.power_cuts:
            self._end(site, power=True)
        elif kind <= 3 and (self.kills or self.power_cuts):
            site.disk.crash_after(random.randint(1, 30))
        elif kind in (4, 8) and self.sync_failures:
            site.disk.fail_sync_after(random.randint(1, 4))
        elif kind == 5:
            self.network.down ^= {random.randrange(len(self.model.shards))}
        elif kind == 6 and self.boundaries:
            self.model.collect(random.randrange(len(self.model.shards)), random.randint(0, len(self.ids)))
        elif kind == 7 and not self.variant.locks and site.processes and len(site.processes) < 4:
            self._guard(site, self._start, site)

    def _rot(self, site: Site) -> None:
        """A bit of the redo log flips; or the log is gone, which ends the joiner first."""
        if self.random.random() < 0.8:
            where = site.disk.rot(str(STATE / "redo"))
            self.say(f"{site.name}: rot in {where}")
        elif not site.disk.exists(STATE / "redo"):
            return
        else:
            self._end(site, power=False)
            self.say(f"{site.name} loses its redo log")
            site.disk.crash_after(None)  # nobody is at work there
            for name in site.disk.names(STATE / "redo"):
                site.disk.remove(STATE / "redo" / name)
            site.disk.sync_dir(STATE / "redo")
        site.rotted = True

    def _copy(self, site: Site) -> None:
        """A copy of the disk is made, or restored once everything in flight from that machine has come to rest."""
        if site.copy is None or self.random.random() < 0.3:
            self.say(f"{site.name} is copied")
            site.copy = site.disk.copy()
            site.registry_copy = deepcopy(self.model.__dict__)
        elif site.newest is None:
            self._end(site, power=False)
            for under_way in (self.network.messages, self.network.stragglers):
                late = [each for each in under_way if each.call.what not in CONFIG_CALLS]
                under_way[:] = [] if self.own_registry else late  # nothing is in flight to a registry next to it
            site.newest, site.newest_registry = site.disk.copy(), deepcopy(self.model.__dict__)
            site.newest_incarnation = self._newest_of(site)
            copy, what = self._mixed(site, site.copy, site.newest)
            self.say(f"{site.name}: {what} is put back")
            site.put_back = True
            self._replace_disk(site, copy)

    def _newest_of(self, site: Site) -> int:
        return self.model.read_witness(site.slot.name).newest

    def _mixed(self, site: Site, older: Copy, newest: Copy) -> tuple[Copy, str]:
        """The newest disk with parts of an older one, and which: state, redo log, output and registry."""
        parts = {"state": STATE, "redo": STATE / "redo", "output": OUTPUT}
        if not self.variant.mixes:
            return older, "all"
        whats = ["all", "state", "redo", "output", "no state"]
        there = {f"{Path(at).name}/{name}" for at, names in older.items() for name in names}
        listed = manifest_in(newest.get(str(STATE), {}).get("manifest.jsonl", b""))
        if not there.issuperset(entry.file for entry in listed.values()):
            whats.remove("output")  # missing final files were moved away: nobody misses them
        what = self.ages.choice(whats)
        if self.own_registry:  # next to its dispatcher, which stays as it is, all of it cannot be older
            what = self.ages.choice(("state", "no state"))
            empty = ModelRegistry(len(self.model.shards), checks_stale=False)
            self._put_registry(site.registry_copy if what == "state" else empty.__dict__)
        if what == "all":
            return older, what
        part = parts[what.removeprefix("no ")]
        kept = {at: names for at, names in newest.items() if not Path(at).is_relative_to(part)}
        taken = {} if what == "no state" else older
        return kept | {at: names for at, names in taken.items() if Path(at).is_relative_to(part)}, what

    def ages_of(self, site: Site) -> Ages:
        """Ages that its next start is told."""
        return Ages(site.accepts_damage, self.own_registry, site.reached if self.own_registry else None)

    def _put_registry(self, state: dict[str, Any]) -> None:
        self.model.__dict__.clear()
        self.model.__dict__.update(deepcopy(state))

    def _replace_disk(self, site: Site, copy: Copy) -> None:
        for process in site.processes:
            process.bury()
        site.processes.clear()
        site.disk.put_back(copy)
        site.unrepaired = True
        site.whole_seen.clear()

    def accepted(self, site: Site, incarnation: int) -> None:
        """A joiner serves. If it does so in an older copy, ids the slot owned until now and showed to nobody may be
        gone: they are recovered by token (rule 13)."""
        if site.newest is None:
            return
        self.say(f"{site.name}: {incarnation} serves in the older copy, which has all that the witness has")
        site.newest = None

    def _end(self, site: Site, *, power: bool) -> None:
        if not any(process.alive for process in site.processes) and not power:
            return
        self.say(f"{site.name}: {'power cut' if power else 'kill'}")
        for process in site.processes:
            process.bury()
        site.processes.clear()
        if power:
            site.disk.power_cut()
            site.unrepaired = True
            site.whole_seen.clear()
        else:
            site.disk.kill()

    # -- readers -----------------------------------------------------------------------------------------------
    def _read(self, site: Site) -> None:
        """Data a reader saw below the durable length, or as whole lines with no power cut since, does not change."""
        if site.newest is not None:
            return  # files were exchanged under the readers; the next start decides whether that may stay
        self.tails[site.name].read()
        lengths = self._published_lengths(site)
        for directory, name in self._files(site):
            plain = f"{directory}/{name}".removesuffix(".gz")
            data = self._content(site, directory, name)
            whole = data[: data.rfind(b"\n") + 1]
            for seen, text in ((site.durable_seen, data), (site.whole_seen, whole)):
                if not text.startswith(seen.get(plain, b"")):
                    raise Violation(f"{site.name}: {plain} changed under its readers")
            site.durable_seen[plain] = data[: lengths.get(plain, 0)]
            # Where a log is damaged, an event's pairs are cut together with the lost one, published or not.
            if not site.unrepaired and not (self.variant.sets and site.rotted):
                site.whole_seen[plain] = whole

    def _check_tail(self, site: Site) -> None:
        """A reader with a cursor has at rest exactly the published data, in its order, and nothing else."""
        lengths, published = self._published_lengths(site), dict[str, bytes]()
        for directory, name in self._files(site):
            data, plain = self._content(site, directory, name), f"{directory}/{name}".removesuffix(".gz")
            published[directory] = published.get(directory, b"") + data[: lengths.get(plain, 0)]
            if lengths.get(plain, 0) < len(data):
                raise Violation(f"{site.name}: lost to readers: {plain} goes on beyond its published length")
        if wrong := self.tails[site.name].check(published):
            raise Violation(f"{site.name}: {wrong}")

    def _published_lengths(self, site: Site) -> dict[str, int]:
        durable, manifest = STATE / "durable.json", STATE / "manifest.jsonl"
        found: dict[str, int] = {}
        if site.disk.exists(durable):
            found |= msgspec.json.decode(site.disk.read(durable))["files"]
        if site.disk.exists(manifest):
            listed = manifest_in(site.disk.read(manifest))
            found |= {name: entry.uncompressed_bytes for name, entry in listed.items()}
        return found

    def _files(self, site: Site) -> list[tuple[str, str]]:
        found = []
        for directory in ("joined", "filtered", "unmatched", "rejected"):
            names = list(site.disk.names(OUTPUT / directory))
            final = [name for name in names if name.endswith(".jsonl.gz") and name[:-3] not in names]
            found += [(directory, name) for name in names if name.endswith(".jsonl") or name in final]
        return found

    def _content(self, site: Site, directory: str, name: str) -> bytes:
        data = site.disk.read(OUTPUT / directory / name)
        return gzip.decompress(data) if name.endswith(".gz") else data

    # -- the end -----------------------------------------------------------------------------------------------
    def _unrest(self) -> str:
        parts = [f"{len(self.network.messages)} messages, {len(self.network.calls)} calls"]
        for site in self.sites:
            process = next((process for process in site.processes if process.alive), None)
            core = process.core if process is not None else None
            open_rows = core.open_rows if core is not None else None
            parts.append(f"{site.name}: pending {sorted(site.pending)}, core {open_rows}")
        owned, reopened = self.model.owned(), self.model.reopened()
        parts.append(f"lost: {len(owned)} ids are owned and have no record" if owned else "no id owned")
        parts.append(f"lost: {len(reopened)} ids stay reopened" if reopened else "none reopened")
        return "; ".join(parts)

    def _at_rest(self) -> bool:
        if any(site.pending for site in self.sites) or self.network.messages or self.network.stragglers:
            return False
        if self.model.owned() or self.model.reopened():
            return False
        for site in self.sites:
            process = next((process for process in site.processes if process.alive), None)
            if process is None or process.core is None or not process.core.empty or process.appends or process.writes:
                return False
        return True

    def _counts(self) -> dict[bytes, int]:
        """Number of records of each id over all outputs."""
        counts: dict[bytes, int] = dict.fromkeys(self.ids, 0)
        for site in self.sites:
            self._read(site)
            for directory, name in self._files(site):
                lacking = 0
                for line in self._content(site, directory, name).splitlines(keepends=True):
                    event_id, pair = self._id_of(line, name), pair_of(line)
                    if (directory == "joined") != (b'"primary":' in line):
                        raise Violation(f"in the wrong log: {directory} has {line!r}")
                    number, of = pair or (1, 1)
                    if number != (1 if not lacking else of - lacking + 1):
                        raise Violation(f"written in part: {event_id.decode()}, pair {number} of {of} in {name}")
                    lacking = of - number
                    counts[event_id] += not lacking
                if lacking:
                    raise Violation(f"written in part: lost are {lacking} pairs at the end of {name}")
        return counts

    def _check_twice(self, counts: dict[bytes, int]) -> None:
        twice = [event_id.decode() for event_id, count in counts.items() if count > 1]
        if twice:
            raise Violation(f"written twice: {twice}")

    def _check(self) -> None:
        counts = self._counts()
        self._check_twice(counts)
        for site in self.sites:
            for process in site.processes:
                if process.verifier.total.refused or process.verifier.total.unreadable:
                    raise Violation(f"the verifier saw a record that nobody owns: {process.verifier.total.examples}")
        for site in self.sites:
            if site.recovered and not site.rotted and not site.put_back:
                raise Violation(f"{site.name}: {site.recovered} ids were recovered, and its log was always sound")
        for event_id, count in counts.items():
            late = all(
                site.outcome[line] is Outcome.LATE
                for site in self.sites
                for line, each in self.lines
                if each == event_id
            )
            if count == 0 and not late:
                raise Violation(f"lost: {event_id.decode()}")
        for site in self.sites:
            self._check_tail(site)

    def _id_of(self, line: bytes, name: str) -> bytes:
        try:
            ref = read_line(line) if line.endswith(b"\n") else None
        except EnvelopeError:
            ref = None
        if ref is None:
            raise Violation(f"damaged line at rest in {name}: {line!r}")
        return ref.event_id


def run_seed(seed: int, variant: Variant | None = None, *, story: bool = False) -> World:
    """Runs one schedule; raises Violation, with the seed in it."""
    world = World(seed, variant or Variant(), story=story)
    with of_seed(seed, world.story):
        world.run()
    return world
