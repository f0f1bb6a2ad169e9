"""A deployment file's data for Spark, as plain data, and the shipped package."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest

import photon
from photon.adapters.contract import Joined, LogFile
from photon.adapters.join_adapters import adapter_of_join
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.config.settings import Duration, Join, Limits, Settings, Size
from photon.spark.logs import names_of, without
from photon.spark.schemas import FOREIGN
from photon.spark.shipped_adapter import adapter_spec, decoded, encoded, made
from photon.spark.shipping import package_zip
from photon.spark.sources import JoinSource, TimeRange, pipeline_sources
from photon.spark.tasks import fair_bytes, packed

DEPLOYMENT = """\
key_file = "key"
[limits]
record = "2KiB"
[join.clicks]
foreign_files = ["click/*.log"]
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "id"
time = { field = "t", unit = "s" }
"""
PIPELINE = """\
[datacentre.%(name)s]
join = "clicks"
primary = "%(name)s/queries"
foreign = "/logs/%(name)s"
output = "%(name)s/out"
state = "%(name)s/state"
address = "127.0.0.1:%(port)d1"
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "photon.toml"
    file.write_text(
        DEPLOYMENT + "".join(PIPELINE % {"name": name, "port": port} for name, port in (("west", 1), ("east", 2)))
    )
    (tmp_path / "key").write_bytes(b"k" * 20)
    return load(file, environment={})


def test_a_pipelines_places(settings: Settings, tmp_path: Path) -> None:
    window = TimeRange(begin_ns=5, end_ns=9)
    found = pipeline_sources(settings, tmp_path, "clicks", window=window)
    assert [each.datacentre for each in found.foreign] == ["east", "west"]
    foreign, primary, output = found.foreign[0], found.primary[0], found.outputs[0]
    assert (foreign.directory, foreign.patterns, foreign.max_record) == ("/logs/east", ["click/*.log"], 2048)
    assert foreign.window == window
    assert (primary.directory, primary.patterns) == (str(tmp_path / "east/queries"), ["**/*"])
    assert primary.window == TimeRange()
    assert (output.output, output.state) == (str(tmp_path / "east/out"), str(tmp_path / "east/state"))
    assert [
        each.datacentre for each in pipeline_sources(settings, tmp_path, "clicks", datacentres=["west"]).outputs
    ] == ["west"]
    with pytest.raises(UsageError, match=r"datacentre north: no pipeline of join 'clicks'; there are: east, west"):
        pipeline_sources(settings, tmp_path, "clicks", datacentres=["north"])


def test_a_join_is_plain_data_and_does_not_show_its_key(settings: Settings, tmp_path: Path) -> None:
    join = pipeline_sources(settings, tmp_path, "clicks").join
    assert msgspec.json.decode(msgspec.json.encode(join), type=JoinSource) == join
    assert join.key == b"k" * 20
    assert "kkk" not in f"{join} {join!r}"


LIMITS = Limits(adapter_timeout=Duration(45.0), adapter_memory=Size(300 << 20))


def test_an_adapters_files_travel_with_it(tmp_path: Path) -> None:
    base, elsewhere = tmp_path / "base", tmp_path / "elsewhere"
    base.mkdir()
    (base / "mine.py").write_text(
        "from photon.adapters.configured import ConfiguredAdapter\n"
        "class Mine(ConfiguredAdapter):\n"
        "    def primary_key(self, record, file):\n"
        "        return b'<' + super().primary_key(record, file) + b'>'\n"
    )
    side = {"format": "jsonl", "key": "q"}
    foreign = side | {"time": {"field": "t", "unit": "s"}}
    join = Join(adapter="mine.py:Mine", options={"primary": side, "foreign": foreign})
    spec = decoded(encoded(adapter_spec("clicks", join, base, LIMITS)))
    (base / "mine.py").unlink()
    adapter = made(spec, elsewhere)
    assert (spec.join, adapter.time_limit_s, adapter.memory_limit) == ("clicks", 45.0, 300 << 20)
    assert adapter.primary_key(b'{"q":"x"}', LogFile("a")) == b"<x>"
    assert type(adapter).__module__ == "photon_adapter_mine"
    assert made(spec, elsewhere) is adapter
    with pytest.raises(UsageError, match=r"mine\.py: .* cannot be read"):
        adapter_spec("clicks", join, base, LIMITS)


def test_the_package_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, second = package_zip(tmp_path), package_zip(tmp_path / "again")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        names = set(archive.namelist())
    root = Path(photon.__file__).parent
    for room in ("adapters/logs", "idregistry/raft", "outputs", "spark", "cli"):
        for path in (root / room).glob("*.py"):
            assert f"photon/{room}/{path.name}" in names
    assert {"photon/__init__.py", "photon/py.typed"} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_what_is_compiled_here_is_taken_as_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for files older than their source."""
    package = tmp_path / "photon"
    package.mkdir()
    for name in ("__init__.py", "changed.py"):
        (package / name).write_text("x = 1\n")
        py_compile.compile(str(package / name))
    (package / "changed.py").write_text("x = 10\n")
    monkeypatch.setattr(photon, "__file__", str(package / "__init__.py"))
    zipped = package_zip(tmp_path)
    with zipfile.ZipFile(zipped) as archive:
        assert archive.namelist() == ["photon/__init__.py", "photon/__init__.pyc", "photon/changed.py"]
    script = f"import sys; sys.path.insert(0, {str(zipped)!r}); import photon.changed as it, photon\n"
    script += "print(photon.__file__, photon.x, it.__file__, it.x)"
    told = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [f"{zipped}/photon/__init__.pyc", "1", f"{zipped}/photon/changed.py", "10"]


def test_schemas_without_columns() -> None:
    assert names_of(without(FOREIGN, "record", "header")) == [
        name for name in names_of(FOREIGN) if name not in ("record", "header")
    ]


def test_work_is_packed_in_order() -> None:
    assert packed([("a", 5), ("b", 5), ("c", 1), ("d", 20), ("e", 1)], 10) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert packed([], 10) == []
    assert fair_bytes(1 << 30, 4) == (1 << 30) // 12
    assert (fair_bytes(0, 4), fair_bytes(1 << 50, 4)) == (4 << 20, 128 << 20)


def test_a_shape_and_its_key_travel_too(tmp_path: Path) -> None:
    base = tmp_path / "deployment"
    base.mkdir()
    (base / "hash.key").write_bytes(b"0123456789abcdef")
    side = {"format": "jsonl", "key": "q"}
    join = Join(
        primary=side,
        foreign={**side, "id": "c", "time": {"field": "t", "unit": "s"}},
        shape={"redact": {"primary.q": "hash"}, "hash_key_file": "hash.key", "foreign": ["c"]},
    )
    there = made(decoded(encoded(adapter_spec("clicks", join, base, LIMITS))), tmp_path / "executor")
    here = adapter_of_join(join, "clicks", base)
    pair = (b'{"c":"c1","q":"q1","t":1}', LogFile("c.log"), b'{"q":"q1"}', LogFile("q.log"))
    result = here.join(*pair)
    assert there.join(*pair) == result
    assert isinstance(result, Joined)
    assert result.foreign == b'{"c":"c1"}'
    assert b"q1" not in (result.primary or b"q1")


def test_files_that_an_adapter_reads_travel_next_to_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import json\n"
        "from pathlib import Path\n"
        "from photon.adapters.contract import Adapter, ForeignHeader\n"
        "class Mine(Adapter):\n"
        "    data_files = ('prices.json',)\n"
        "    def __init__(self, options):\n"
        "        super().__init__(options)\n"
        "        self.prices = json.loads(Path(__file__).with_name('prices.json').read_bytes())\n"
        "    def foreign_header(self, record, file):\n"
        "        return ForeignHeader(record, 1)\n"
        "    def primary_key(self, record, file):\n"
        "        return record\n"
        "    def foreign_payload(self, record, file):\n"
        "        return None\n"
        "    primary_payload = foreign_payload\n"
    )
    (tmp_path / "prices.json").write_text('{"a": 3}')
    spec = decoded(encoded(adapter_spec("x", Join(adapter="mine.py:Mine"), tmp_path, LIMITS)))
    there = made(spec, tmp_path / "executor")
    assert there.prices == {"a": 3}  # type: ignore[attr-defined]
    (tmp_path / "prices.json").unlink()
    with pytest.raises(UsageError, match=r"prices.json: .* cannot be read"):
        adapter_spec("x", Join(adapter="mine.py:Mine"), tmp_path, LIMITS)
    source = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(source.replace("('prices.json',)", "('../key',)"))
    with pytest.raises(UsageError, match=r"Mine.data_files: '../key' is not the name of a file next to mine.py"):
        adapter_spec("x", Join(adapter="mine.py:Mine"), tmp_path, LIMITS)
