"""Facts of this machine are what they are: directories, logs, ports, certificates, packages."""

from __future__ import annotations

import errno
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from photon.config.certificate_files import begin, issue_missing
from photon.config.disk import RealDisk
from photon.config.loader import convert, load
from photon.config.settings import Settings
from photon.fleet import here
from photon.fleet.processes import of_datacentre
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from photon.tables import Tables
from photon.tables.system import with_observer
from tests.unit.outputs.helpers import WrittenSlot, lines

CONFIG = """
key_file = "key"
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "id"
time = {{ field = "t", unit = "s" }}
[join.clicks]
foreign_files = ["*.log"]
[tls]
directory = "certs"
[registry.replicas.r1]
address = "10.255.255.1:7001"
directory = "r1"
[datacentre.east]
join = "clicks"
primary = "queries"
foreign = "clicks"
output = "output"
state = "state/east"
address = "{address}"
"""


def settings_in(base: Path, address: str = "10.255.255.1:7003") -> Settings:
    (base / "photon.toml").write_text(CONFIG.format(address=address))
    return load(base / "photon.toml", environment={}, flags=())


def test_where_a_datacentre_is(tmp_path: Path) -> None:
    assert here.datacentres_here(settings_in(tmp_path), tmp_path) == []
    assert here.datacentres_here(settings_in(tmp_path, "127.0.0.1:7003"), tmp_path) == ["east"]
    (tmp_path / "clicks").mkdir()
    assert here.datacentres_here(settings_in(tmp_path), tmp_path) == ["east"]


def test_directories_are_measured_where_they_would_be_made(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    state, output = here.directories(settings_in(tmp_path), tmp_path, ["east"])
    assert (state.what, state.exists, state.tried) == ("state", False, str(tmp_path))
    assert (output.exists, output.problem, output.device) == (True, "", state.device)
    assert 0 < output.free <= output.size
    assert output.sync_s > 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["output", "photon.toml"]
    (tmp_path / "state").write_text("a file")
    state, _ = here.directories(settings_in(tmp_path), tmp_path, ["east"])
    assert "is not a directory" in state.problem


def test_a_full_directory_has_no_room_whatever_the_disk_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(directory: Path) -> float:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(here, "_sync", full)
    state, _ = here.directories(settings_in(tmp_path), tmp_path, ["east"])
    assert (state.problem, state.free) == ("", 0)
    assert state.size > 0


def test_logs_are_matched_by_their_patterns(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    (tmp_path / "clicks").mkdir()
    for name in ("a.log", "b.log", "c.txt"):
        (tmp_path / "clicks" / name).write_text("x\n")
    foreign, primary = here.logs(settings, tmp_path, ["east"])
    assert (foreign.matched, foreign.others, foreign.problem) == (2, 1, "")
    assert (primary.side, primary.problem) == ("primary", "No such file or directory")


def test_marks_of_absent_values_among_the_keys_are_counted(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    for side in ("clicks", "queries"):
        (tmp_path / side).mkdir()
        keys = ["a", "NULL", "NULL", "b", "-", ""]
        lines = [f'{{"q":"{key}","id":"i{at}","t":{1_700_000_000 + at}}}\n' for at, key in enumerate(keys)]
        (tmp_path / side / "a.log").write_text("".join([*lines, "no JSON\n"]))
    for each in here.logs(settings, tmp_path, ["east"]):
        assert (each.join, each.absent_keys) == ("clicks", {"NULL": 2, "-": 1})
    listed = (tmp_path / "photon.toml").read_text().replace('key = "q"', 'key = "q"\nabsent = ["NULL", "-"]')
    (tmp_path / "photon.toml").write_text(listed)
    settings = load(tmp_path / "photon.toml", environment={}, flags=())
    assert [each.absent_keys for each in here.logs(settings, tmp_path, ["east"])] == [{}, {}]


def test_code_of_the_user_is_not_asked(tmp_path: Path) -> None:
    """A record that ends a joiner would end the doctor, too."""
    code = "import os\nfrom photon.adapters.configured import ConfiguredAdapter\nclass Ends(ConfiguredAdapter):\n"
    asked = ("primary_key", "primary_keys_of", "foreign_header", "header_columns")
    (tmp_path / "ends.py").write_text(code + "".join(f"    def {name}(self, *_): os._exit(7)\n" for name in asked))
    named = CONFIG.format(address="10.255.255.1:7003").replace("[join.clicks.", "[join.clicks.options.")
    named = named.replace("[join.clicks]\n", '[join.clicks]\nadapter = "ends.py:Ends"\n')
    (tmp_path / "photon.toml").write_text(named)
    for side in ("clicks", "queries"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.log").write_text('{"q":"NULL","id":"i","t":1700000000}\n')
    settings = load(tmp_path / "photon.toml", environment={}, flags=())
    assert [(each.matched, each.absent_keys) for each in here.logs(settings, tmp_path, ["east"])] == [(1, {})] * 2


def test_ports() -> None:
    with socket.socket() as taken, socket.socket() as free:
        for each in (taken, free):
            each.bind(("127.0.0.1", 0))
        taken.listen(1)
        there, gone = (f"127.0.0.1:{each.getsockname()[1]}" for each in (taken, free))
        free.close()
        joiner, page = (of_datacentre(kind, "east", "east", there) for kind in ("joiner", "status"))
        wanted = {there: joiner, gone: joiner, "192.0.2.1:7001": joiner}
        states = {port.address: port.state for port in here.ports(wanted, [])}
        assert states == {there: "taken", gone: "free", "192.0.2.1:7001": "elsewhere"}
        assert [port.state for port in here.ports({there: joiner}, [there])] == ["ours"]
        assert [port.state for port in here.ports({there: page}, [gone])] == ["ours"]
        assert [port.state for port in here.ports({there: page}, [])] == ["taken"]


def test_certificates_and_key(tmp_path: Path) -> None:
    settings, now = settings_in(tmp_path), datetime.now(UTC)
    assert not any(pair.there for pair in here.pairs(settings, tmp_path, now))
    certs = tmp_path / "certs"
    begin(certs, "test", now, days=60)
    issue_missing(certs, certs, ["datacentre-east", "registry-r1"], now, days=20)
    pairs = {pair.identity: pair for pair in here.pairs(settings, tmp_path, now)}
    assert {name for name, pair in pairs.items() if pair.there} == {"ca", "datacentre-east", "registry-r1"}
    joiner = pairs["datacentre-east"]
    assert (joiner.problem, joiner.key_mode) == ("", 0o600)
    assert joiner.ends is not None
    assert timedelta(days=19) < joiner.ends - now < timedelta(days=21)
    (certs / "datacentre-east.key").chmod(0o644)
    for suffix in ("crt", "key"):  # under a wrong name
        (certs / f"registry-r1.{suffix}").write_bytes((certs / f"datacentre-east.{suffix}").read_bytes())
    pairs = {pair.identity: pair for pair in here.pairs(settings, tmp_path, now)}
    assert pairs["datacentre-east"].key_mode == 0o644
    assert "datacentre-east" in pairs["registry-r1"].problem
    late = {pair.identity: pair for pair in here.pairs(settings, tmp_path, now + timedelta(days=30))}
    assert late["datacentre-east"].problem


def test_the_deployments_key(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert "cannot be read" in here.key(settings, tmp_path).problem
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o640)
    there = here.key(settings, tmp_path)
    assert (there.problem, there.mode) == ("", 0o640)


def test_states_of_another_release_aresamples(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert here.states(settings, tmp_path, ["east"]) == []
    slot = tmp_path / "state" / "east" / "slots" / "east-1"
    slot.mkdir(parents=True)
    (slot / "durable.json").write_text('{"version":99,"slot":"east-1","files":{}}')
    (tmp_path / "state" / "east" / "dispatcher.db").write_bytes(b"no database" * 50)
    said = here.states(settings, tmp_path, ["east"])
    assert sorted(Path(each.path).name for each in said) == ["dispatcher.db", "east-1"]
    assert any("version 99" in each.problem for each in said)


@pytest.mark.parametrize(
    ("found", "versions", "fits"),
    [
        ("1.26.4", ">=1.26,<3", True), ("1.25.9", ">=1.26,<3", False), ("3.0", ">=1.26,<3", False),
        ("0.3.17", "==0.3.17", True), ("0.3.18", "==0.3.17", False), ("8.1", ">=8.1,<9", True), ("9", "", True),
        ("2.0.0rc1", ">=1.26,<3", True),
    ],
)  # fmt: skip
def test_whether_a_package_fits(found: str, versions: str, fits: bool) -> None:
    assert here._fits(found, versions) is fits


def test_this_machine() -> None:
    machine = here.machine()
    assert machine.python_fits
    assert machine.files_soft >= 256
    assert all(package.found for package in machine.packages)


def test_tables_are_looked_at_twice_where_something_waits(tmp_path: Path) -> None:
    assert here.tables(convert({}, "file"), tmp_path) is None
    settings = convert({"tables": {"file": "t.db", "keep": "7s"}}, "file")
    assert here.tables(settings, tmp_path) is None, "nothing has been made"
    with Tables.open(tmp_path / "t.db") as tables:
        tables.observe("clicks", "campaign")
        tables.system.change(lambda state: with_observer(state, "clicks", "campaign", "count"))
        with tables.transaction() as t:
            t.table("clicks").row("k").set("campaign", "c")
    found = here.tables(settings, tmp_path, lambda seconds: None)
    assert (found.problem, found.oracle_problem, found.stuck, found.stuck_at) == ("", "", 1, "clicks/k/campaign")
    assert (found.old_locks, found.looked_at, found.safe_point_s, found.keep_s) == ([], 1, None, 7.0)

    def tended(seconds: float) -> None:
        with Tables.open(tmp_path / "t.db") as tables:
            tables.around.store.forget(tables.around.store.dirty("clicks", "", 9))

    assert here.tables(settings, tmp_path, tended).stuck == 0
    (tmp_path / "t.db").write_text("something else")
    assert "t.db: " in here.tables(settings, tmp_path).problem


def test_a_directory_below_the_logs_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.log").touch()
    (tmp_path / "b.log").touch()
    listed = os.scandir

    def scandir(path: Path) -> object:
        if str(path).rstrip("/").endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr("photon.adapters.logs.discovery.os.scandir", scandir)
    found = here._logs("east", "foreign", tmp_path, ("**/*",), ())
    assert (found.matched, found.unreadable) == (1, ["sub/"])


def test_output_that_cannot_be_read_is_gathered(tmp_path: Path) -> None:
    """A finished file may have been archived, unless it is the newest of its kind; marked ranges are
    distinguished."""
    slot = WrittenSlot(tmp_path, "east-1")
    for number in (1, 2, 3, 4):
        slot.final(number, lines(0, 5))
    length = len(lines(0, 5))
    for number in (1, 2, 4):
        slot.path(number).with_name(slot.path(number).name + ".gz").unlink()
    add_damaged(RealDisk(), slot.state, "east-1", [DamagedRange(slot.name(2), 0, length, "is gone", "then")])
    file = CONFIG.format(address="127.0.0.1:7003").replace('"output"', '"out"').replace("state/east", "state")
    (tmp_path / "photon.toml").write_text(file)
    settings = load(tmp_path / "photon.toml", environment={}, flags=())
    found = here.output_ranges(settings, tmp_path, ["east"])
    places = [(Path(each.path).name, each.start, each.end, each.marked, each.moved) for each in found]
    assert places == [
        ("east-1-000002.jsonl", 0, length, "then", False),
        ("east-1-000001.jsonl", 0, length, "", True),
        ("east-1-000004.jsonl", 0, length, "", False),
    ]


def test_a_dispatcher_s_finished_files_may_have_been_archived(tmp_path: Path) -> None:
    exports = WrittenSlot(tmp_path, "dispatcher", directory="exports")
    for number in (1, 2, 3):
        exports.append(number, lines(0, 5), "rejected")
        exports.path(number, "rejected").unlink()
    exports.roll(1, "rejected")
    exports.roll(3, "rejected")
    file = CONFIG.format(address="127.0.0.1:7003").replace('"output"', '"out"').replace("state/east", "state")
    (tmp_path / "photon.toml").write_text(file)
    settings = load(tmp_path / "photon.toml", environment={}, flags=())
    found = here.output_ranges(settings, tmp_path, ["east"])
    assert [(Path(each.path).name, each.moved) for each in found] == [
        ("dispatcher-000001.jsonl", True),
        ("dispatcher-000002.jsonl", False),
        ("dispatcher-000003.jsonl", False),
    ]
