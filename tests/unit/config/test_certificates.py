"""Certificates: issued ones can be used, and nothing else can."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from photon.config import certificate_files as files
from photon.config.certificates import (
    CertificateError,
    check_identity,
    facts,
    issue,
    make_authority,
    read_certificate,
)
from photon.config.loader import convert
from photon.config.tls import OPERATOR, dns_name, identity_of
from photon.fleet.processes import identities

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
R1 = "registry-r1"


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """An authority, and a certificate of r1."""
    files.begin(tmp_path, "test", NOW, days=3650)
    files.issue_into(tmp_path, tmp_path, R1, NOW, days=365)
    return tmp_path


def test_what_was_issued_loads_without_a_note(certs: Path) -> None:
    tls = files.load(certs, R1, NOW)
    assert (tls.identity, tls.notes) == (R1, ())
    assert tls.certificate == (certs / f"{R1}.crt").read_bytes()
    assert "PRIVATE" not in repr(tls)


def test_keys_are_for_their_owner_alone(certs: Path) -> None:
    for name in ("ca", R1):
        assert stat.S_IMODE((certs / f"{name}.key").stat().st_mode) == 0o600
    assert not list(certs.glob("*.new"))


def test_nothing_is_replaced_without_force(certs: Path) -> None:
    before = {path: path.read_bytes() for path in certs.iterdir()}
    with pytest.raises(CertificateError, match=r"ca\.crt: already exists"):
        files.begin(certs, "test", NOW, days=10)
    with pytest.raises(CertificateError, match=r"registry-r1\.crt: already exists"):
        files.issue_into(certs, certs, R1, NOW, days=10)
    assert {path: path.read_bytes() for path in certs.iterdir()} == before
    files.issue_into(certs, certs, R1, NOW, days=10, force=True)
    assert (certs / f"{R1}.key").read_bytes() != before[certs / f"{R1}.key"]


def test_a_certificate_without_its_key_counts_as_none(certs: Path) -> None:
    (certs / f"{R1}.key").unlink()
    files.issue_into(certs, certs, R1, NOW, days=10)
    assert files.load(certs, R1, NOW).identity == R1


def test_the_authority_may_lie_elsewhere(certs: Path, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    files.issue_into(certs, apart, OPERATOR, NOW, days=365)
    assert sorted(path.name for path in apart.iterdir()) == ["ca.crt", "operator.crt", "operator.key"]
    assert files.load(apart, OPERATOR, NOW).identity == OPERATOR


def test_only_services_may_be_called_and_all_may_call(certs: Path) -> None:
    files.issue_into(certs, certs, OPERATOR, NOW, days=365)
    for identity, wanted in ((R1, {"serverAuth", "clientAuth"}), (OPERATOR, {"clientAuth"})):
        certificate = read_certificate((certs / f"{identity}.crt").read_bytes(), identity)
        [purposes] = [each.value for each in certificate.extensions if each.oid.dotted_string == "2.5.29.37"]
        assert {each._name for each in purposes} == wanted


def test_it_is_never_valid_for_longer_than_its_authority() -> None:
    authority = make_authority("test", NOW, 10)
    made = facts(read_certificate(issue(authority, R1, NOW, days=365).certificate, R1))
    assert made.ends == NOW + timedelta(days=10)
    with pytest.raises(CertificateError, match="the authority expired on 2030-01-11"):
        issue(authority, R1, NOW + timedelta(days=11))


@pytest.mark.parametrize(("days", "noted"), [(336, True), (334, False)])
def test_it_is_said_when_fewer_than_thirty_days_are_left(certs: Path, days: int, noted: bool) -> None:
    assert bool(files.load(certs, R1, NOW + timedelta(days=days)).notes) is noted


def test_what_a_certificate_says(certs: Path) -> None:
    files.issue_into(certs, certs, "operator-al", NOW, days=10, hosts=["photon.example.com", "10.0.0.1", "::1"])
    said = {path.name: found for path, found in files.show(certs)}
    assert said["operator-al.crt"].names == ("operator-al.photon.internal", "photon.example.com", "10.0.0.1", "::1")
    assert said["operator-al.crt"].ends == NOW + timedelta(days=10)
    assert said["ca.crt"].authority
    assert said["ca.crt"].identity == ""


def test_missing_ones_are_issued_and_others_kept(certs: Path) -> None:
    kept = (certs / f"{R1}.crt").read_bytes()
    wanted = [R1, OPERATOR]
    assert files.issue_missing(certs, certs, wanted, NOW, days=365) == {R1: "kept", OPERATOR: "issued"}
    assert (certs / f"{R1}.crt").read_bytes() == kept
    later = NOW + timedelta(days=340)
    assert files.issue_missing(certs, certs, wanted, later, days=365) == {R1: "kept", OPERATOR: "kept"}
    assert files.issue_missing(certs, certs, wanted, later, days=365, renew=True) == dict.fromkeys(wanted, "issued")
    assert files.load(certs, R1, later).notes == ()


def test_what_another_authority_issued_is_issued_anew(certs: Path, tmp_path: Path) -> None:
    """Its ca.crt is replaced in a directory used by one process alone, and not where others depend on it."""
    new, alone = tmp_path / "new", tmp_path / "alone"
    files.issue_into(certs, alone, R1, NOW, days=365)
    files.begin(new, "new", NOW, days=3650)
    assert files.issue_missing(new, alone, [R1], NOW, days=365) == {R1: "issued"}
    assert files.load(alone, R1, NOW).authorities == (new / "ca.crt").read_bytes()
    assert files.issue_missing(new, alone, [R1], NOW, days=365) == {R1: "kept"}
    files.issue_into(certs, certs, OPERATOR, NOW, days=365)
    before = {path: path.read_bytes() for path in certs.iterdir() if path.is_file()}
    with pytest.raises(CertificateError, match=r"was not issued by the authority in ca\.crt next to it"):
        files.issue_missing(new, certs, [R1], NOW, days=365)
    assert {path: path.read_bytes() for path in certs.iterdir() if path.is_file()} == before
    both = (certs / "ca.crt").read_bytes() + (new / "ca.crt").read_bytes()
    (certs / "ca.crt").write_bytes(both)
    assert files.issue_missing(new, certs, [R1], NOW, days=365) == {R1: "issued"}
    assert files.issue_missing(certs, certs, [R1, OPERATOR], NOW, days=365) == {R1: "kept", OPERATOR: "kept"}
    assert (certs / "ca.crt").read_bytes() == both


def _remove(name: str) -> Callable[[Path], None]:
    return lambda certs: (certs / name).unlink()


def _garbage(name: str) -> Callable[[Path], None]:
    def spoil(certs: Path) -> None:
        (certs / name).write_bytes(b"\xff\x00 -----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")

    return spoil


def _large(certs: Path) -> None:
    with open(certs / f"{R1}.crt", "wb") as file:
        file.truncate(1 << 30)


def _of_another(certs: Path) -> None:
    files.issue_into(certs, certs, "registry-r2", NOW, days=365)
    for end in ("crt", "key"):
        (certs / f"registry-r2.{end}").rename(certs / f"{R1}.{end}")


def _key_of_another(certs: Path) -> None:
    files.issue_into(certs, certs, "registry-r2", NOW, days=365)
    (certs / "registry-r2.key").rename(certs / f"{R1}.key")


def _other_authority(certs: Path) -> None:
    files.begin(certs, "test", NOW, days=10, force=True)


SPOILT: list[tuple[Callable[[Path], None], str]] = [
    (_remove(f"{R1}.crt"), r"registry-r1\.crt: cannot be read \(No such file or directory\); create it"),
    (_remove(f"{R1}.key"), r"registry-r1\.key: cannot be read"),
    (_remove("ca.crt"), r"ca\.crt: cannot be read"),
    (_garbage(f"{R1}.crt"), r"registry-r1\.crt: holds no certificate in PEM form"),
    (_garbage(f"{R1}.key"), r"registry-r1\.crt: the key next to it cannot be read"),
    (_garbage("ca.crt"), r"ca\.crt: holds no certificate"),
    (_large, "has more than 1048576 bytes"),
    (_of_another, "belongs to registry-r2, not to registry-r1"),
    (_key_of_another, "does not match the key next to it"),
    (_other_authority, r"was not issued by the authority in ca\.crt"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT, ids=[message[:40] for _, message in SPOILT])
def test_what_cannot_be_used_is_one_line(certs: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(certs)
    with pytest.raises(CertificateError, match=message) as caught:
        files.load(certs, R1, NOW)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("days", "message"), [(366, "expired on 2031-01-01"), (-1, "is not valid before 2030-01-01 11:00")]
)
def test_a_certificate_out_of_time_is_refused(certs: Path, days: int, message: str) -> None:
    with pytest.raises(CertificateError, match=message):
        files.load(certs, R1, NOW + timedelta(days=days))


def test_two_authorities_in_one_file_while_one_replaces_the_other(certs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    files.begin(other, "new", NOW, days=3650)
    both = (certs / "ca.crt").read_bytes() + (other / "ca.crt").read_bytes()
    (certs / "ca.crt").write_bytes(both)
    assert files.load(certs, R1, NOW).authorities == both
    files.issue_into(other, certs, R1, NOW, days=365, force=True)
    assert files.load(certs, R1, NOW).authorities == both


@pytest.mark.parametrize("identity", ["", "r1", "registry", "registry-", "registry-R1", "wan-x", "../operator", "ca"])
def test_an_identity_is_of_the_known_kinds(certs: Path, identity: str) -> None:
    with pytest.raises(CertificateError, match="must be registry-REPLICA"):
        files.issue_into(certs, certs, identity, NOW, days=10)


@pytest.mark.parametrize("host", ["", "a b", "*", "registry-r2.photon.internal", "registry-r2.PHOTON.internal", "-x"])
def test_a_further_name_is_a_host_and_no_identity(certs: Path, host: str) -> None:
    with pytest.raises(CertificateError, match="must be a DNS name or an address"):
        files.issue_into(certs, certs, OPERATOR, NOW, days=10, hosts=[host])


def test_a_dns_name_is_an_identity_only_with_our_ending() -> None:
    assert identity_of(dns_name(R1)) == R1
    assert identity_of("registry-r1.example.com") == ""


def test_what_a_deployment_needs() -> None:
    pipeline = dict.fromkeys(("join", "primary", "foreign", "output", "state"), "x")
    pipeline |= {"join": "c", "address": "h:2"}
    settings = convert(
        {
            "join": {"c": {"adapter": "a.py:A"}},
            "tls": {"directory": "certs"},
            "registry": {"replicas": {"r1": {"address": "h:1", "directory": "d"}}},
            "datacentre": {"east": pipeline},
        },
        "here",
    )
    assert sorted(identities(settings)) == [
        "datacentre-east",
        "operator",
        "registry-r1",
        "spark-east",
    ]
    for each in identities(settings):
        check_identity(each)


def test_a_key_that_everybody_can_read_is_said(certs: Path) -> None:
    key = certs / f"{R1}.key"
    key.chmod(0o640)
    assert files.load(certs, R1, NOW).notes == ()
    key.chmod(0o644)
    assert files.load(certs, R1, NOW).notes == (f"{key}: everybody on this machine can read it; chmod 600 it",)
