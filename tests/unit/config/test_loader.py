import tomllib
from pathlib import Path
from typing import Any

import pytest

from photon.config.loader import ConfigError, convert, load
from photon.config.settings import Part, Pipeline
from photon.config.units import seconds, size
from tests.unit.refusals import one_line

GOOD = {
    "join": {"clicks": {"adapter": "a.py:A", "unmatched_after": "1h"}},
    "limits": {"cache": "1GiB", "latency": 0.01},
}


def test_durations_and_sizes_are_read_with_their_units() -> None:
    settings = convert(GOOD, "f.toml")
    assert settings.join["clicks"].unmatched_after == 3600.0
    assert settings.limits.cache == 1 << 30
    assert settings.limits.latency == 0.01


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"registry": {"shard": 1}}, "f.toml: registry.shard: unknown key; did you mean 'shards'?"),
        ({"registry": {"shards": "x"}}, "f.toml: registry.shards = 'x': expected `int`, got `str`"),
        ({"registry": {"shards": 0}}, "f.toml: registry.shards = 0: must be from 1 to 4096"),
        (
            {"limits": {"cache": "12 quux"}},
            "f.toml: limits.cache = '12 quux': a size is a number of bytes or text such as "
            '"64KiB", "128MiB", "4GiB"',
        ),
        (
            {"join": {"clicks": {"adapter": "a.py:A", "unmatched_after": "soon"}}},
            "f.toml: join.clicks.unmatched_after = 'soon': a duration is a number of seconds or text such as "
            '"500ms", "5s", "1h", "3d"',
        ),
        ({"join": {"clicks": {"primry": {}}}}, "f.toml: join.clicks.primry: unknown key; did you mean 'primary'?"),
        (
            {"join": {"clicks": {}}},
            'f.toml: join.clicks: needs adapter = "path.py:Class", or the tables primary and foreign',
        ),
        (
            {"registry": {"replicas": {"r1": {"directory": "d"}}}},
            "f.toml: registry.replicas.r1: object missing required field `address`",
        ),
        (
            {"registry": {"replicas": {"r1": {"address": "nowhere", "directory": "d"}}}},
            "f.toml: registry.replicas.r1: address 'nowhere' must be host:port, such as 127.0.0.1:7101",
        ),
        ({"limits": {"batch_events": 0}}, "f.toml: limits.batch_events = 0: must be more than 0"),
        ({"registry": {"retention": "0s"}}, "f.toml: registry.retention = 0.0: must be more than 0"),
    ],
)
def test_an_error_names_key_value_and_mend(raw: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        convert(raw, "f.toml")
    assert str(error.value) == message


def test_environment_and_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "photon.toml"
    path.write_text("[registry]\nshards = 2\n[limits]\nbatch_events = 10\n")
    settings = load(
        path, environment={"PHOTON_SET_registry__shards": "4", "HOME": "/"}, flags=["limits.batch_events=20"]
    )
    assert (settings.registry.shards, settings.limits.batch_events) == (4, 20)


@pytest.mark.parametrize("flag", ["registry.shards", "registry.shards.deep=1"])
def test_a_wrong_override_is_one_line(tmp_path: Path, flag: str) -> None:
    path = tmp_path / "photon.toml"
    path.write_text("[registry]\nshards = 2\n")
    with one_line(ConfigError, flag):
        load(path, environment={}, flags=[flag])


def test_a_missing_or_broken_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "none.toml", environment={})
    (tmp_path / "broken.toml").write_text("[registry\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path / "broken.toml", environment={})
    (tmp_path / "pattern.toml").write_text('pattern = "\\d+"\n')
    with pytest.raises(ConfigError, match=r"not valid TOML: .* line 1, column .*; write it between single quotes"):
        load(tmp_path / "pattern.toml", environment={})


def test_references_between_tables_are_checked() -> None:
    east: dict[str, object] = {"join": "clicks", "primary": "p", "foreign": "f", "address": "h:2"}

    def refused(said: str, replica: dict[str, object] | None = None, **changes: object) -> None:
        registry = {"replicas": {"r1": {"address": "h:9", **(replica or {})}}}
        with pytest.raises(ConfigError, match=said):
            convert({**GOOD, "registry": registry, "datacentre": {"east": {**east, **changes}}}, "f.toml")

    refused("no such join; there are: clicks", join="orders")
    refused("address h:2: used twice", apart={"eventstore": "h:2"})
    refused("address 127.0.0.1:3: used twice, by .*east.status and", apart={"eventstore": "127.0.0.1:3"})
    refused(r"datacentre\.east\.address: is missing", address="")
    refused(r"apart\.joiner: names 2 addresses but needs 1", apart={"joiner": ["h:7", "h:8"]})
    refused(r"apart\.dispatchers: no such part; did you mean 'dispatcher'", apart={"dispatchers": "h:7"})
    refused(r"east\.status: a separate status page", apart={"status": "h:7"}, status="h:8")
    refused(r"r1\.together: runs in its datacentre's process", {"together": True})
    refused(r"r1\.together: runs in its datacentre's process", {"together": True, "datacentre": "west"})


def test_what_a_datacentre_does_not_say_has_a_default() -> None:
    east = {"join": "clicks", "primary": "p", "foreign": "f", "address": "h:7100"}
    found = convert({**GOOD, "registry": {"replicas": {"r1": {"address": "h:9"}}}, "datacentre": {"east": east}}, "f")
    pipeline = found.datacentre["east"]
    assert (pipeline.output, pipeline.state, pipeline.page) == ("east/output", "east/state", "127.0.0.1:7101")
    assert found.registry.replicas["r1"].directory == "registry/r1"


def test_parts_that_call_an_adapter_of_users_are_apart() -> None:
    east: dict[str, object] = {"join": "clicks", "primary": "p", "foreign": "f", "address": "h:7100"}

    def made(adapter: str | None, **more: object) -> Pipeline:
        said = {"adapter": adapter} if adapter else {"primary": {}, "foreign": {"key": "k"}}
        raw = {"join": {"clicks": said}, "datacentre": {"east": {**east, **more}}}
        settings = convert(raw, "f")
        inside.append([*settings.inside("east")])
        return settings.datacentre["east"]

    inside: list[list[Part]] = []
    assert made(None).apart == made("configured").apart == {}
    assert inside[0] == inside[1] == ["eventstore", "joiner", "verifier", "dispatcher", "status"]
    own = {"joiner": "h:7110", "dispatcher": "h:7180", "eventstore": "h:7190", "verifier": "h:7191"}
    assert made("a.py:A").apart == made("installed").apart == own
    assert made("a.py:A", apart={"joiner": "h:1"}, dispatchers=2).apart == {
        "joiner": "h:1", "eventstore": "h:7190", "verifier": "h:7191",
    }  # fmt: skip
    assert inside[2:] == [["status"]] * 3
    with pytest.raises(ConfigError, match=r"used twice, by .*east\.address and .*east\.apart\.verifier"):
        made("a.py:A", apart={"verifier": "h:7100"})


def test_a_join_on_spark_says_where_its_application_runs() -> None:
    raw = {"join": "clicks", "primary": "p", "foreign": "f", "address": "h:7100", "pipeline": "spark"}
    with pytest.raises(ConfigError, match=r"^f: datacentre\.east\.apart\.spark: is missing, .* apart = .*7200"):
        convert({**GOOD, "datacentre": {"east": raw}}, "f")
    found = convert({**GOOD, "datacentre": {"east": {**raw, "apart": {"spark": "h:7200"}}}}, "f")
    assert found.datacentre["east"].at("spark") == ["h:7200"]


@pytest.mark.parametrize(("text", "value"), [("500ms", 0.5), ("3d", 259200.0), (7, 7.0), ("2 min", 120.0)])
def test_seconds(text: str | float, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), [("128MiB", 128 << 20), ("1kB", 1000), (17, 17)])
def test_size(text: str | int, value: int) -> None:
    assert size(text) == value


@pytest.mark.parametrize("text", ["-1s", True, "1 fortnight", ""])
def test_a_wrong_duration_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


SHARED = """
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
[datacentre.{0}]
join = "clicks"
primary = "p"
foreign = "f"
output = "o"
state = "s"
address = "127.0.0.1:{1}1"
"""


def test_datacentres_that_share_a_join_need_ids_in_the_record_or_identical_copies() -> None:
    one = SHARED.format("east", 700)
    both = tomllib.loads(one + SHARED[SHARED.index("[datacentre") :].format("west", 800))
    convert(tomllib.loads(one), "f.toml")
    with pytest.raises(ConfigError) as error:
        convert(both, "f.toml")
    assert str(error.value) == (
        "f.toml: join.clicks.foreign.id: is not set, but east and west share this join; name the field that holds "
        "the event's id, or set join.clicks.identical_copies = true if their foreign logs are the same files byte by "
        "byte"
    )
    clicks = both["join"]["clicks"]
    for mended in (
        clicks | {"identical_copies": True},
        clicks | {"foreign": clicks["foreign"] | {"id": "c"}},
        {"adapter": "a.py:A"},
    ):
        convert(both | {"join": {"clicks": mended}}, "f.toml")


def test_cache_nodes_are_apart() -> None:
    one = tomllib.loads(SHARED.format("east", 700))
    east = one["datacentre"]["east"]

    def with_caches(said: object) -> dict[str, str]:
        raw = one | {"datacentre": {"east": east | {"apart": {"cache": said}}}}
        return convert(raw, "f.toml").caches("east")

    assert with_caches(["127.0.0.1:7003", "h:7004"]) == {"east-c1": "127.0.0.1:7003", "east-c2": "h:7004"}
    for wrong, said in (
        ("127.0.0.1:7001", "used twice"),
        ("nowhere", "must be host:port"),
    ):
        with pytest.raises(ConfigError, match=said):
            with_caches(wrong)


CHAIN = """
[join.clicks]
primary = { format = "jsonl", key = "q" }
foreign = { format = "jsonl", key = "q", id = "c", time = { field = "t", unit = "s" } }
[join.purchases]
primary = { join = "clicks", key = "foreign.c" }
foreign = { format = "jsonl", key = "c", id = "p", time = { field = "t", unit = "s" } }
[datacentre.east]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "o1"
state = "s1"
address = "127.0.0.1:7001"
[datacentre.east-purchases]
join = "purchases"
foreign = "purchases"
output = "o2"
state = "s2"
address = "127.0.0.1:7011"
"""


def test_logs_that_are_another_joins_output_have_a_directory_of_their_own_unless_one_is_named() -> None:
    raw = tomllib.loads(CHAIN)
    settings = convert(raw, "f.toml")
    assert settings.datacentre["east-purchases"].primary == "s2/upstream/primary"
    assert settings.relayed("east-purchases") == {"primary": "clicks"}
    assert settings.relayed("east") == {}
    assert (settings.chain(), settings.chain("clicks")) == (["purchases", "clicks"], ["clicks"])
    assert settings.beside("east") == []
    raw["datacentre"]["east-purchases"]["primary"] = "shipped"
    settings = convert(raw, "f.toml")
    assert settings.datacentre["east-purchases"].primary == "shipped"
    assert settings.relayed("east-purchases") == {}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"join": {"clicks": {"foreign": {"join": "purchases"}}}},
         "join.clicks.foreign.join = 'purchases': a join cannot depend on itself: clicks <- purchases <- clicks"),
        ({"join": {"purchases": {"foreign": {"join": "purchases"}}}},
         "join.purchases.foreign.join = 'purchases': a join cannot depend on itself: purchases <- purchases"),
        ({"join": {"purchases": {"primary": {"join": "click"}}}},
         "join.purchases.primary.join = 'click': no such join; there are: clicks, purchases"),
        ({"join": {"purchases": {"primary": {"join": 3}}}},
         "join.purchases.primary.join = 3: no such join; there are: clicks, purchases"),
        ({"datacentre": {"east": {"join": "purchases"}}},
         "join.purchases.primary.join = 'clicks': no datacentre of this file joins clicks"),
        ({"datacentre": {"east": {"foreign": ""}}},
         "datacentre.east.foreign: is missing; it names the directory of the foreign logs"),
        ({"datacentre": {"east-purchases": {"apart": {"relay": "127.0.0.1:7001"}}}},
         "address 127.0.0.1:7001: used twice, by datacentre.east.address and datacentre.east-purchases.apart.relay; "
         "each process needs its own"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_chain_is_refused_in_one_line(change: dict[str, Any], said: str) -> None:
    raw = tomllib.loads(CHAIN)
    _merge(raw, change)
    if raw["datacentre"]["east"]["join"] == "purchases":
        del raw["datacentre"]["east"]["primary"]
    with pytest.raises(ConfigError) as error:
        convert(raw, "f.toml")
    assert str(error.value) == f"f.toml: {said}"


def test_no_joiner_has_the_slot_of_a_join_on_spark() -> None:
    raw = tomllib.loads(CHAIN)
    raw["datacentre"]["east"]["slot"] = "east-purchases-1"
    with pytest.raises(ConfigError, match=r"slot east-purchases-1: reserved for the join on Spark; choose another"):
        convert(raw, "f.toml")


def test_pairs_of_one_event_are_no_foreign_events_without_an_id_of_their_own() -> None:
    raw = tomllib.loads(CHAIN)
    raw["join"]["clicks"] |= {"match": "all", "unmatched_after": "1m"}
    raw["join"]["purchases"] = {
        "primary": {"format": "jsonl", "key": "c"},
        "foreign": {"join": "clicks", "key": "foreign.c"},
    }
    raw["datacentre"]["east-purchases"] |= {"primary": "purchases"}
    del raw["datacentre"]["east-purchases"]["foreign"]
    for shared in (None, "", "event_id", "foreign.c", "source.offset"):
        raw["join"]["purchases"]["foreign"]["id"] = shared
        with pytest.raises(ConfigError, match="its records share their event's id"):
            convert(raw, "f.toml")
    raw["join"]["purchases"]["foreign"]["id"] = "primary.q"
    convert(raw, "f.toml")


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for name, value in change.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


PAYMENTS: dict[str, dict[str, object]] = {
    "primary": {"format": "jsonl", "key": "k", "time": {"field": "t", "unit": "s"}},
    "foreign": {"format": "jsonl"},
}


@pytest.mark.parametrize(
    ("join", "said"),
    [
        ({"match": "all", "within": {"befor": "1h"}}, "befor"),
        ({"match": "latest", "within": {"after": "1s"}}, "within.after"),
        ({"match": "all", "file_map": "sparse"}, "sparse"),
        ({"match": "latest", "primary": {"format": "jsonl", "key": "k"}}, "primary.time"),
        ({"match": "all", "within": {"after": "2h"}, "unmatched_after": "1h"}, "unmatched_after"),
        ({"match": "all", "primary": {**PAYMENTS["primary"], "duplicates": "last"}}, "primary.duplicates"),
    ],
)
def test_kinds_of_join_that_contradict_themselves_are_one_line(join: dict[str, object], said: str) -> None:
    with one_line(ConfigError, said):
        convert({"join": {"pay": PAYMENTS | join}}, "f.toml")


def test_a_left_join_without_an_end_of_patience_is_refused() -> None:
    raw = tomllib.loads(SHARED.format("east", 700))
    raw["join"]["clicks"] |= {"unmatched": "inline", "unmatched_after": "1h"}
    assert convert(raw, "f.toml").join["clicks"].unmatched == "inline"
    del raw["join"]["clicks"]["unmatched_after"]
    with pytest.raises(ConfigError, match="without unmatched_after no event") as refused:
        convert(raw, "f.toml")
    assert "\n" not in str(refused.value)
    raw["join"]["clicks"]["within"] = {"before": "1h"}  # what is out of bounds is unmatched at once
    convert(raw, "f.toml")


def test_bounds_are_nanoseconds_and_one_may_be_left_out() -> None:
    settings = convert({"join": {"pay": PAYMENTS | {"match": "all", "within": {"before": "1h"}}}}, "f.toml")
    within = settings.join["pay"].within
    assert within is not None
    assert (within.before_ns, within.after_ns) == (3600 * 10**9, 0)


def test_computations_have_an_address_and_a_state_of_their_own() -> None:
    one = {"file": "spend.py", "state": "spend", "address": "127.0.0.1:7901"}
    assert convert({"compute": {"spend": one}}, "f").compute["spend"].processes == 1
    for more, said in (
        (
            {"b": {**one, "address": "127.0.0.1:7902"}},
            "compute: two computations have the state spend; give each its own",
        ),
        (
            {"b": {**one, "state": "b"}},
            "address 127.0.0.1:7901: used twice, by compute.a.address and "
            "compute.b.address; each process needs its own",
        ),
        (
            {"b": {**one, "state": "b", "address": "7902"}},
            "compute.b.address: address '7902' must be host:port, such",
        ),
        (
            {"b": {"file": "b.py", "state": "b", "processes": 2}, "b-2": {"file": "b.py", "state": "c"}},
            "compute.b-2: another computation's process has this name; rename it",
        ),
        ({"b": {"file": "b.py", "state": "b", "processes": 65}}, "compute.b.processes = 65: expected `int` <= 64"),
        (
            {"b": {"file": "b.py", "state": "b", "process": 2}},
            "compute.b.process: unknown key; did you mean 'processes'",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            convert({"compute": {"a": one, **more}}, "f")
        assert str(error.value).startswith(f"f: {said}"), error.value
