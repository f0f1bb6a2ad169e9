"""The kept records of logs, and the message when an adapter treats one of them differently."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, Skipped
from photon.adapters.loader import code_of
from photon.adapters.logs.api import Block
from photon.adapters.logs.follower import Follower
from photon.assembly.samples import Logs, Samples, compare_here, difference
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.idregistry.api import Digester
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.samples import with_others

DIGESTER = Digester(b"k" * 32, "clicks")


class Clicks(Adapter):
    change = ""
    no_id = False

    def foreign_header(self, record: bytes, file: object) -> ForeignHeader:
        if record.startswith(b"#"):
            raise Skipped("a comment")
        said = json.loads(record)
        event_id, key, time_ns = said["c"], said["q"], said["t"]
        if self.change == "broken":
            raise BadRecord("now")
        event_id = event_id.upper() if self.change == "id" else event_id
        key = key.upper() if self.change == "key" else key
        time_ns += self.change == "time"
        return ForeignHeader(key.encode(), time_ns, None if self.no_id else event_id.encode())

    def primary_key(self, record: bytes, file: object) -> bytes:
        key: str = json.loads(record)["q"]
        return (key.upper() if self.change in ("key", "primary key") else key).encode()

    def foreign_payload(self, record: bytes, file: object) -> bytes | None:
        return record

    primary_payload = foreign_payload


class Redacting(Clicks):
    def shown_record(self, record: bytes, file: object) -> bytes | None:
        return b'{"c":"****"}'


class Kept:
    """A registry."""

    def __init__(self) -> None:
        self.samples: tuple[c.Sample, ...] = ()
        self.silent = 0
        self.asked = 0

    async def __call__(self, samples: Sequence[c.Sample]) -> tuple[c.Sample, ...] | Refusal:
        self.asked += 1
        if self.silent:
            self.silent -= 1
            return Refusal(Status.UNKNOWN, "no replica answers")
        self.samples = with_others(self.samples, samples)
        return self.samples


class World:
    def __init__(self, base: Path) -> None:
        self.base, self.kept, self.stop = base, Kept(), asyncio.Event()
        for side in ("primary", "foreign"):
            (base / side).mkdir()

    def write(self, side: str, name: str, *lines: str) -> None:
        with (self.base / side / name).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def samples(self, adapter: Adapter) -> Samples:
        logs = {side: Logs(self.base / side, ("**/*",)) for side in ("primary", "foreign")}
        return Samples(self.kept, "clicks", adapter, DIGESTER, logs)  # type: ignore[arg-type]

    def blocks(self, side: str) -> list[Block]:
        follower = Follower(self.base / side, has_header=False)
        follower.scan()
        found = list(follower.poll(1 << 20))
        follower.close()
        return found

    async def read(self, adapter: Adapter, *sides: str) -> None:
        for side in sides or ("primary", "foreign"):
            of = self.samples(adapter)
            assert await of.keep(of.began(side, self.blocks(side)), self.stop)  # type: ignore[arg-type]

    async def begins(self, change: str = "", kind: type[Clicks] = Clicks) -> None:
        adapter = kind({})
        adapter.change = change
        assert await self.samples(adapter).begin(self.stop)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write("foreign", "a.log", "# comment", *(f'{{"c":"c{n}","q":"q{n}","t":{n}}}' for n in range(3)))
    made.write("primary", "q.log", "rubbish", *(f'{{"q":"q{n}"}}' for n in range(3)))
    return made


async def test_the_code_that_begins_is_audited(world: World) -> None:
    with capture_logs() as lines:
        await world.begins()
    (said,) = [each for each in lines if each["event"] == "audit"]
    assert said["join"] == "clicks"
    assert said["adapter"] == code_of(Clicks({}))


async def test_of_each_log_the_first_event_is_kept(world: World) -> None:
    world.write("foreign", "b.log", '{"c":"z","q":"y","t":7}')
    await world.read(Clicks({}))
    assert [(each.side, each.log, each.id_shown, each.key_shown, each.time_ns) for each in world.kept.samples] == [
        ("foreign", "a.log", b"c0", b"q0", 0),
        ("foreign", "b.log", b"z", b"y", 7),
        ("primary", "q.log", b"", b"q0", 0),
    ]
    before = world.kept.samples
    await world.read(Clicks({}))
    assert world.kept.samples is before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("id", r"another id: 'c0' before and 'C0' now, from the record '\{.*c0.*\}' in a.log"),
        ("key", r"another key: 'q0' before and 'Q0' now, from the record .* in q.log"),
        ("primary key", r"another key: 'q0' before and 'Q0' now, from the record .* in q.log"),
        ("time", r"event time: 1970-01-01T00:00:00.000000000Z before and 1970-01-01T00:00:00.000000001Z now"),
    ],
)
async def test_an_adapter_that_makes_something_else_of_a_record_does_not_begin(
    world: World, change: str, says: str
) -> None:
    await world.read(Clicks({}))
    await world.begins()
    with pytest.raises(UsageError, match=says) as refused:
        await world.begins(change)
    assert "\n" not in str(refused.value)
    assert "restart with the former adapter, or give the join a new name" in str(refused.value)


async def test_records_that_are_rejected_now_or_not_here_are_not_compared(world: World) -> None:
    await world.read(Clicks({}), "foreign")
    await world.begins("broken")
    (world.base / "foreign" / "a.log").unlink()
    await world.begins("id")


async def test_a_rolled_or_compressed_log_is_found(world: World) -> None:
    import gzip

    await world.read(Clicks({}), "foreign")
    path = world.base / "foreign" / "a.log"
    data = path.read_bytes()
    path.unlink()
    (world.base / "foreign" / "a.log.3.gz").write_bytes(gzip.compress(data))
    with pytest.raises(UsageError, match=r"in a\.log\.3\.gz"):
        await world.begins("id")


async def test_ids_by_place_stay_ids_by_place(world: World) -> None:
    placed = Clicks({})
    placed.no_id = True
    await world.read(placed, "foreign")
    assert await world.samples(placed).begin(world.stop)
    with pytest.raises(UsageError, match="another id: its place before and 'c0' now"):
        await world.begins()


async def test_nothing_of_a_redacted_record_is_kept_or_shown(world: World) -> None:
    await world.read(Redacting({}), "foreign")
    (sample,) = world.kept.samples
    assert (sample.id_shown, sample.key_shown) == (b"", b"")
    with pytest.raises(UsageError, match=r"another id: a value with digest [0-9a-f]{8} before.*\*\*\*\*") as refused:
        await world.begins("id", Redacting)
    assert "c0" not in str(refused.value)


async def test_two_that_begin_at_once_agree_on_the_first(world: World) -> None:
    await world.read(Clicks({}), "foreign")
    other = Clicks({})
    other.change = "id"
    with pytest.raises(UsageError, match="another id"):
        await world.read(other, "foreign")
    assert [each.id_shown for each in world.kept.samples] == [b"c0"]


async def test_a_configured_adapter_asks_nothing(world: World) -> None:
    sides = {"primary": {"format": "jsonl", "key": "q"}, "foreign": {"format": "jsonl", "key": "q", "id": "c"}}
    sides["foreign"]["time"] = {"field": "t", "unit": "s"}  # type: ignore[assignment]
    adapter = ConfiguredAdapter(sides)
    assert await world.samples(adapter).begin(world.stop)
    assert not world.samples(adapter).began("foreign", world.blocks("foreign"))
    assert not world.kept.asked


async def test_the_registry_is_waited_for_until_the_stop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.assembly.samples.ASK_S", 0.01)
    world.kept.silent = 3
    await world.begins()
    assert world.kept.asked == 4
    world.kept.silent = 1 << 30
    of = world.samples(Clicks({}))
    found = of.began("foreign", world.blocks("foreign"))
    assert not await of.keep(found, world.stop, patient=False)
    asyncio.get_running_loop().call_later(0.05, world.stop.set)
    assert not await of.keep(found, world.stop)


async def test_the_first_logs_of_a_side_are_kept_where_none_are(world: World) -> None:
    await world.samples(Clicks({})).keep_first("primary", world.stop)
    assert [(each.side, each.log) for each in world.kept.samples] == [("primary", "q.log")]


async def test_a_command_compares_the_logs_of_all_datacentres_that_are_here(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """import json
from photon.adapters.contract import Adapter, ForeignHeader
class Clicks(Adapter):
    def foreign_header(self, r, f):
        said = json.loads(r)
        return ForeignHeader(said["q"].encode(), said["t"], said["c"].upper().encode())
    def primary_key(self, r, f): return b""
    def foreign_payload(self, r, f): return r
    primary_payload = foreign_payload
"""
    await world.read(Clicks({}), "foreign")
    (world.base / "code.py").write_text(code)
    (world.base / "key").write_bytes(b"k" * 32)
    (world.base / "photon.toml").write_text(
        'key_file = "key"\n[join.clicks]\nadapter = "code.py:Clicks"\n'
        + "".join(
            f'[datacentre.{name}]\njoin = "clicks"\nprimary = "{base}primary"\nforeign = "{base}foreign"\n'
            f'output = "out-{name}"\nstate = "state-{name}"\naddress = "127.0.0.1:{port}"\n'
            for name, base, port in (("east", "away/", 7001), ("west", "", 7101))
        )
    )
    settings = load(world.base / "photon.toml", environment={})
    compare_here(settings, world.base, "clicks", ())
    with pytest.raises(UsageError, match="another id: 'c0' before and 'C0' now"):
        compare_here(settings, world.base, "clicks", world.kept.samples)
    (world.base / "code.py").write_text(code.replace(".upper()", ""))
    compare_here(settings, world.base, "clicks", world.kept.samples)


def test_equal_samples_do_not_differ() -> None:
    one = c.Sample("foreign", "a.log", b"r" * 16, b"k" * 16, b"i" * 16, 5, b"key", b"id")
    assert difference(one, one) == ""
