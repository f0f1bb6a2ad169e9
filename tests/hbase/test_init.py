"""``photon eventstore init`` on a real HBase."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.hbase.standalone import Standalone
from photon.cli.main import main
from photon.config.errors import UsageError
from photon.eventstore.hbase.admin import make_table
from photon.eventstore.hbase.api import Put
from photon.eventstore.hbase.schema import read_instances, split_keys
from tests.hbase.maps import Maps

CONFIG = """
[join.j]
adapter = "adapter.py:Lines"
[registry]
retention = "1d"
[datacentre.east]
join = "j"
primary = "p"
foreign = "f"
output = "o"
state = "s"
address = "127.0.0.1:1"
[datacentre.east.hbase]
thrift = "127.0.0.1:{thrift}"
admin = "127.0.0.1:{admin}"
table = "{table}"
"""
ADAPTER = "from tests.unit.eventstore.helpers import LineAdapter as Lines\n"


@pytest.fixture
def config(hbase: Standalone, tmp_path: Path) -> Path:
    (tmp_path / "adapter.py").write_text(ADAPTER)
    path = tmp_path / "photon.toml"
    path.write_text(CONFIG.format(thrift=hbase.ports.thrift, admin=hbase.ports.admin, table="photon_init"))
    return path


def init(config: Path, *more: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["eventstore", "init", "--config", str(config), *more])
    return done.exit_code, done.output


def test_the_table_is_made_once_and_left_as_it_is(config: Path) -> None:
    code, said = init(config, "-o", "json")
    assert code == 0, said
    assert json.loads(said) == {"table": "photon_init", "made": True, "regions": 16, "ttl_s": 108_000, "notes": []}
    code, said = init(config)
    assert (code, said) == (0, "table photon_init: exists already; 16 regions, rows kept 108000 s\n")
    code, said = init(config, "--set", "registry.retention=2d")
    assert code == 3
    assert "its rows' TTL in seconds is 108000, not 216000; in HBase's shell: alter 'photon_init'" in said


def test_without_an_admin_server_it_says_what_to_type(maps: Maps) -> None:
    hbase = maps.hbase()
    try:
        with pytest.raises(UsageError, match=r"create 'photon_none', .*TTL => 60}, {SPLITS => \[\"\\x10\", "):
            make_table(hbase, None, "photon_none", 60)
    finally:
        hbase.close()


def test_an_admin_server_that_is_not_there(config: Path, hbase: Standalone) -> None:
    config.write_text(config.read_text().replace("photon_init", "photon_else").replace(str(hbase.ports.admin), "1"))
    code, said = init(config)
    assert code == 1
    assert "table photon_else: no Thrift 2 server of HBase answers at 127.0.0.1:1: " in said
    assert said.count("\n") == 1


def test_a_table_that_was_made_anew_is_known_by_its_new_regions(maps: Maps, hbase: Standalone) -> None:
    """Though the Thrift server remembers the old ones."""
    client = maps.hbase()
    name = b"photon_anew"
    try:
        regions = []
        for _ in range(2):
            make_table(client, f"127.0.0.1:{hbase.ports.admin}", name.decode(), None)
            client.write(name, [Put(bytes([salt]), {b"m:v": b""}) for salt in range(256)])
            regions.append(client.regions(name))
            assert [region.start for region in regions[-1]] == [b"", *split_keys()]
            assert [region.end for region in regions[-1]] == [*split_keys(), b""]
            instances = read_instances(client, regions[-1])
            assert instances is not None
            assert len(instances) == 16
            client.call(lambda c: c.delete_table(name, disable=True), "delete")
        assert not {region.name for region in regions[0]} & {region.name for region in regions[1]}
    finally:
        client.close()
