"""Adapters by path: loaded, or refused in one line that says where."""

from __future__ import annotations

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import structlog.testing

from photon.adapters import entry_points, loader
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import AdapterError, LogFile
from photon.adapters.join_adapters import adapter_of_join
from photon.adapters.loader import code_of, load_adapter
from photon.config.settings import Join
from tests.unit.refusals import one_line

GOOD = '''
from dataclasses import dataclass
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader

@dataclass
class Row:
    key: bytes

class Mine(Adapter):
    """First word is the key, second the time."""
    def foreign_header(self, record, file):
        key, time = record.split(b" ")
        return ForeignHeader(key, int(time))
    def primary_key(self, record, file):
        return Row(record.split(b" ")[0]).key
    def foreign_payload(self, record, file):
        return None
    primary_payload = foreign_payload
'''
OPTIONS = {"primary": {"format": "jsonl", "key": "k"},
           "foreign": {"format": "jsonl", "key": "k", "time": {"field": "t", "unit": "s"}}}  # fmt: skip


def modules() -> set[str]:
    return {name for name in sys.modules if name.startswith("photon_adapter_")}


def test_configured() -> None:
    assert type(load_adapter("configured", OPTIONS, Path())) is ConfiguredAdapter


def test_by_path(tmp_path: Path) -> None:
    (tmp_path / "good_one.py").write_text(GOOD)
    adapter = load_adapter("good_one.py:Mine", {"a": 1}, tmp_path)
    file = LogFile("x")
    assert adapter.options == {"a": 1}
    assert adapter.foreign_header(b"k 5", file).event_time_ns == 5
    assert adapter.primary_keys(b"k x\nl y\n", file) == [b"k", b"l"]
    assert load_adapter(f"{tmp_path}/good_one.py:Mine", {}, Path("/")).primary_key(b"k", file) == b"k"
    assert not (tmp_path / "__pycache__").exists()
    said = code_of(adapter)
    assert re.fullmatch("good_one.py: Mine [0-9a-f]{12}", said)
    (tmp_path / "good_one.py").write_text(GOOD + "\n# changed\n")
    changed = load_adapter("good_one.py:Mine", {"a": 1}, tmp_path)
    assert code_of(changed) != said
    assert changed.rule() == adapter.rule()


def test_photon_own_adapter_has_no_code() -> None:
    assert code_of(load_adapter("configured", OPTIONS, Path())) == ""


@pytest.mark.parametrize(
    ("source", "name", "line"),
    [
        (None, "x.py:Mine", "x.py: there is no such file; correct the adapter's path"),
        ("class Mine:\n  def (", "x.py:Mine", "x.py:2: syntax error:"),
        ("x = '\0'", "x.py:Mine", "x.py"),
        ("import not_there_at_all", "x.py:Mine", "x.py:1: cannot be imported: ModuleNotFoundError: No module named"),
        ("\n\nraise SystemExit(3)", "x.py:Mine", "x.py:3: cannot be imported: SystemExit: 3"),
        (GOOD, "x.py:Mime", "x.py: has no class Mime; use a class of this file: Mine"),
        ("x = 1", "x.py:Mine", "x.py: has no class Mine; write one that derives from Adapter"),
        ("class Mine: pass", "x.py:Mine", "x.py: Mine is not a subclass of photon.adapters.contract.Adapter"),
        (GOOD, "x.py:Row", "x.py: Row is not a subclass of photon.adapters.contract.Adapter; use a class of this"),
        (GOOD + "    api_version = 99\n", "x.py:Mine", "written for contract version 99; this Photon has 1"),
        (GOOD.replace("def primary_key", "def other"), "x.py:Mine", "x.py:9: Mine does not define primary_key; add"),
        (GOOD + "    def __init__(self, options):\n        raise KeyError('rate')\n", "x.py:Mine",
         "x.py:20: Mine cannot be created with its options: KeyError: 'rate'; correct the adapter"),
        (GOOD + "    def __init__(self, options):\n        pass\n", "x.py:Mine", "does not call its base class"),
        (GOOD + "    def rule(self):\n        return 1 / 0\n", "x.py:Mine",
         "x.py:20: Mine.rule failed: ZeroDivisionError: division by zero; correct the adapter"),
        (GOOD + "    def rule(self):\n        return 'text'\n", "x.py:Mine", "Mine.rule returns str, not bytes"),
        (None, "x.py", "adapter: 'x.py' is not an adapter; write \"configured\", \"path.py:Class\" or the name of"),
        (None, ":Mine", "is not an adapter"),
        (None, "x.py:", "is not an adapter"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded(tmp_path: Path, source: str | None, name: str, line: str) -> None:
    if source is not None:
        (tmp_path / "x.py").write_text(source)
    with one_line(AdapterError, line):
        load_adapter(name, {}, tmp_path)


def test_a_failed_load_leaves_no_module_behind(tmp_path: Path) -> None:
    path = tmp_path / "broken_one.py"
    path.write_text("x = 1\nraise RuntimeError('no')\n")
    before = modules()
    with pytest.raises(AdapterError, match=r"broken_one.py:2"):
        load_adapter("broken_one.py:Mine", {}, tmp_path)
    assert modules() == before
    path.write_text(GOOD)
    adapter = load_adapter("broken_one.py:Mine", {}, tmp_path)
    path.write_text("raise RuntimeError('no')\n")
    with pytest.raises(AdapterError):
        load_adapter("broken_one.py:Mine", {}, tmp_path)
    assert sys.modules[type(adapter).__module__].Mine is type(adapter)


def test_an_error_of_the_configuration_passes_through(tmp_path: Path) -> None:
    (tmp_path / "sub_one.py").write_text(
        "from photon.adapters.configured import ConfiguredAdapter\nclass Mine(ConfiguredAdapter): pass\n"
    )
    assert load_adapter("sub_one.py:Mine", OPTIONS, tmp_path).primary_key(b'{"k":"a"}', LogFile("x")) == b"a"
    with pytest.raises(AdapterError, match="format = 'xml' is not possible"):
        load_adapter("sub_one.py:Mine", {**OPTIONS, "primary": {"format": "xml", "key": "k"}}, tmp_path)


@pytest.mark.parametrize(
    ("written", "says"),
    [("2", "install a newer Photon"), ("0", "follow docs/adapters.md"), ("'1'", "follow"), ("True", "follow")],
)
def test_versions_that_are_not_spoken(tmp_path: Path, written: str, says: str) -> None:
    (tmp_path / "x.py").write_text(GOOD + f"    api_version = {written}\n")
    with pytest.raises(AdapterError) as caught:
        load_adapter("x.py:Mine", {}, tmp_path)
    assert f"is written for contract version {written}; this Photon has 1; {says}" in str(caught.value)


def test_an_older_version_that_is_spoken_is_loaded_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (loader, entry_points):
        monkeypatch.setattr(module, "API_VERSION", 2)
    monkeypatch.setattr(entry_points, "API_SPOKEN", (1, 2))
    (tmp_path / "x.py").write_text(GOOD)
    with structlog.testing.capture_logs() as said:
        assert load_adapter("x.py:Mine", {}, tmp_path).api_version == 1  # it names none
    assert [(each["log_level"], each["written_for"], each["now"]) for each in said] == [("warning", 1, 2)]


TYPED = GOOD.replace("from dataclasses", "import msgspec\nfrom dataclasses") + (
    "    class Options(msgspec.Struct):\n        latest_s: int = 5\n        names: tuple[str, ...] = ()\n"
)


def test_options_with_types(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(TYPED)
    assert load_adapter("x.py:Mine", {}, tmp_path).options == {"latest_s": 5, "names": ()}
    assert load_adapter("x.py:Mine", {"names": ["a"]}, tmp_path).options == {"latest_s": 5, "names": ("a",)}
    for given, said in (
        ({"latests": 1}, "options of Mine: latests = 1 is not an option; did you mean 'latest_s'?"),
        ({"zzz": 1}, "options of Mine: zzz = 1 is not an option; known are latest_s, names"),
        ({"latest_s": "1"}, "options of Mine: Expected `int`, got `str` - at `$.latest_s`; correct the value"),
    ):
        with one_line(AdapterError, said):
            load_adapter("x.py:Mine", given, tmp_path)


def test_options_with_types_next_to_those_of_configured_sides(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "import msgspec\nfrom photon.adapters.configured import ConfiguredAdapter\n"
        "class Mine(ConfiguredAdapter):\n    class Options(msgspec.Struct):\n        rate: float\n"
    )
    assert load_adapter("x.py:Mine", {**OPTIONS, "rate": 2}, tmp_path).options["rate"] == 2
    with pytest.raises(AdapterError, match=r"primry = .* is not an option; known are rate"):
        load_adapter("x.py:Mine", {**OPTIONS, "rate": 2, "primry": {}}, tmp_path)


def test_a_framing_is_one_that_there_is(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(GOOD + "    primary_framing = 'quoted'\n")
    with pytest.raises(AdapterError, match=r"Mine.primary_framing is str, not a Framing; return a Framing"):
        load_adapter("x.py:Mine", {}, tmp_path)
    (tmp_path / "y.py").write_text(
        GOOD + "    from photon.adapters.contract import Framing\n    foreign_framing = Framing('avro')\n"
    )
    with pytest.raises(AdapterError, match=r"y.py:\d+: cannot be imported: .*'avro' is not a framing; write one of"):
        load_adapter("y.py:Mine", {}, tmp_path)


def test_a_package_may_not_bring_an_adapter_of_photons_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("configured", "photon.adapters.configured:ConfiguredAdapter", entry_points.GROUP)
    monkeypatch.setattr(entry_points, "_entry_points", lambda name=None: [point])
    (listed,) = entry_points.installed()
    assert 'registers an adapter under the reserved name "configured"; rename its entry point' in listed.fault
    with pytest.raises(AdapterError, match=r"adapter configured: .* registers an adapter under the reserved name"):
        adapter_of_join(Join(adapter="configured", options=OPTIONS), "x", Path())
    adapter_of_join(Join(**OPTIONS), "x", Path())  # type: ignore[arg-type]
