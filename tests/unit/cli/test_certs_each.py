"""Certificates for volumes: each identity in a separate directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.config.loader import load
from photon.fleet.processes import identities
from tests.unit.refusals import photon, refused


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "photon.toml"
    replica = '[registry.replicas.r1]\naddress = "r1:7001"\ndirectory = "/registry"\n'
    path.write_text('[tls]\ndirectory = "/certs"\n' + replica)
    return path


def test_each_directory_holds_one_pair_and_the_authority(file: Path, tmp_path: Path) -> None:
    each = tmp_path / "each"
    command = ("certs", "for", file, "--ca", tmp_path / "ca", "--each-in", each)
    assert photon(*command).exit_code == 0
    names = identities(load(file, environment={}))
    assert sorted(path.name for path in each.iterdir()) == sorted(names)
    for name in names:
        assert sorted(path.name for path in (each / name).iterdir()) == ["ca.crt", f"{name}.crt", f"{name}.key"]
    before = {name: (each / name / f"{name}.crt").read_bytes() for name in names}
    assert photon(*command).exit_code == 0
    assert before == {name: (each / name / f"{name}.crt").read_bytes() for name in names}


def test_directories_only(file: Path, tmp_path: Path) -> None:
    each = tmp_path / "each"
    assert photon("certs", "for", file, "--each-in", each, "--directories-only").exit_code == 0
    assert not [path for path in each.rglob("*") if path.is_file()]
    assert sorted(path.name for path in each.iterdir()) == sorted(identities(load(file, environment={})))


def test_it_needs_the_authority_elsewhere(file: Path, tmp_path: Path) -> None:
    assert "--ca" in refused(photon("certs", "for", file, "--each-in", tmp_path / "each"))
