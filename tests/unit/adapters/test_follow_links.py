"""``follow_links``: where it may appear, what it may name, and that it reaches the adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.contract import Adapter, AdapterError
from photon.adapters.join_adapters import adapter_of
from photon.adapters.testkit import Samples
from photon.adapters.testkit.samples import read_samples
from photon.config.loader import ConfigError, load
from tests.deployments import addresses, datacentre, join, write

CODE = """
from photon.adapters.configured import ConfiguredAdapter

class Own(ConfiguredAdapter):
    def __init__(self, options):
        super().__init__({
            "primary": {"format": "jsonl", "key": "q"},
            "foreign": {"format": "jsonl", "key": "q", "id": "id", "time": {"field": "t", "unit": "s"}},
        })
        self.foreign_links = ("/var/own",)
"""
TLS = '[tls]\ndirectory = "certs"\n'


def adapter(base: Path, *texts: str, flags: tuple[str, ...] = ()) -> Adapter:
    file = write(base, *texts)
    return adapter_of(load(file, environment={}, flags=flags), "clicks", base)


def deployed(base: Path, *texts: str, foreign: str = "clicks", flags: tuple[str, ...] = ()) -> Adapter:
    free = addresses(5)
    east = datacentre(free, "eventstore", "joiners.east-1").replace('foreign = "clicks"', f'foreign = "{foreign}"')
    return adapter(base, join(), east, *texts, flags=flags)


def following(*directories: object) -> str:
    return "join.clicks.foreign.follow_links=[" + ", ".join(f'"{each}"' for each in directories) + "]"


def test_it_is_a_key_of_a_side_and_no_part_of_the_rule(tmp_path: Path) -> None:
    plain = adapter(tmp_path, join())
    assert (plain.primary_links, plain.foreign_links) == ((), ())
    made = adapter(tmp_path, join(), flags=(following("/var/log/pods"),))
    assert (made.primary_links, made.foreign_links) == ((), ("/var/log/pods",))
    assert made.rule() == plain.rule()


def test_an_adapter_of_code_has_it_from_the_table_or_sets_it_itself(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CODE)
    own = '[join.clicks]\nadapter = "own.py:Own"\n'
    assert list(adapter(tmp_path, own).foreign_links) == ["/var/own"]
    made = adapter(tmp_path, own, flags=(following("/var/log/pods"),))
    assert (list(made.primary_links), list(made.foreign_links)) == ([], ["/var/log/pods"])
    latest = ('join.clicks.match="latest"', 'join.clicks.primary.follow_links=["/var/log/pods"]')
    assert load(tmp_path / "photon.toml", environment={}, flags=latest)  # whether code reads a time is not known yet
    for value in ('"/var/log/pods"', "[1]"):
        with pytest.raises(AdapterError, match=r"join.clicks.foreign: follow_links = .* is not possible"):
            adapter(tmp_path, own, flags=(f"join.clicks.foreign.follow_links={value}",))
    with pytest.raises(ConfigError, match="both an adapter and primary/foreign tables"):
        adapter(tmp_path, own, flags=(following("/var/log/pods"), 'join.clicks.foreign.key="q"'))


@pytest.mark.parametrize("written", ["pods", "/", "//", "/.", "", "./pods", "../pods", "/..", "~/pods"])
@pytest.mark.parametrize("code", [False, True])
def test_relative_directories_and_the_root_are_refused(tmp_path: Path, written: str, code: bool) -> None:
    (tmp_path / "own.py").write_text(CODE)
    text = '[join.clicks]\nadapter = "own.py:Own"\n' if code else join()
    with pytest.raises(AdapterError) as refused:
        adapter(tmp_path, text, flags=(following(written),))
    line = str(refused.value)
    assert line.startswith(f"join.clicks.foreign: follow_links = {written!r} is not possible; write absolute")


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ("", "tls.directory"),  # all that is there
        ("certs", "tls.directory"),
        ("certs/old", "tls.directory"),
        ("link-to-certs", "tls.directory"),
        ("key", "key_file"),
        ("state", "datacentre.east.state"),
        ("state/eventstore", "datacentre.east.state"),
        ("output", "datacentre.east.output"),
    ],
)
def test_links_never_lead_to_what_is_photons_own(tmp_path: Path, entry: str, name: str) -> None:
    (tmp_path / "certs" / "old").mkdir(parents=True)
    (tmp_path / "link-to-certs").symlink_to("certs")
    with pytest.raises(AdapterError) as refused:
        deployed(tmp_path, TLS, flags=(following(tmp_path / entry),))
    line = str(refused.value)
    assert line.startswith(f"join.clicks: follow_links: {tmp_path / entry} contains, or is in, {name} (")
    assert line.endswith("; name a directory that has only logs")


def test_links_may_lead_next_to_what_is_photons_own(tmp_path: Path) -> None:
    assert deployed(tmp_path, TLS, flags=(following(tmp_path / "pods", "/var/log/pods"),)).foreign_links


@pytest.mark.parametrize(
    ("directory", "name"), [(".", "tls.directory"), ("certs", "tls.directory"), ("certs/logs", "tls.directory")]
)
def test_a_log_directory_with_certificates_is_refused(tmp_path: Path, directory: str, name: str) -> None:
    (tmp_path / "certs").mkdir()
    with pytest.raises(AdapterError) as refused:
        deployed(tmp_path, TLS, foreign=directory)
    line = str(refused.value)
    assert line.startswith("datacentre.east.foreign: ")
    assert f"contains, or is in, {name} ({tmp_path / 'certs'}), which would be read as a log; move one" in line


def test_a_log_directory_with_the_key_is_refused_where_the_key_would_be_read(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"datacentre.east.foreign: .* contains, or is in, key_file"):
        deployed(tmp_path, foreign=".")
    files = ('join.clicks.foreign_files=["logs/*.log"]',)
    assert deployed(tmp_path, foreign=".", flags=files)
    (tmp_path / ".hidden").mkdir()
    assert deployed(tmp_path, foreign=".", flags=('key_file=".hidden/key"', 'join.clicks.foreign_files=["**/*"]'))


def test_samples_follow_a_link_that_is_named_and_none_beside_it(tmp_path: Path) -> None:
    made = adapter(tmp_path, join())
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "real.log").write_bytes(b'{"q": "1"}\n')
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "a.log").symlink_to(tmp_path / "private" / "real.log")
    assert [each.record for each in read_samples(made, "primary", tmp_path / "some" / "a.log").samples] == [
        b'{"q": "1"}'
    ]
    with pytest.raises(AdapterError, match=r"leads to .*real.log, outside the log directory"):
        Samples.read(made, primary=tmp_path / "some")
    made.primary_links = [str(tmp_path / "private")]
    assert len(Samples.read(made, primary=tmp_path / "some").primary) == 1
