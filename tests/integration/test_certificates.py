"""Mutual TLS at every kind of service: a caller with a wrong, expired, absent or foreign certificate gets no answer,
and no service with one is believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from photon.config.certificate_files import begin, issue_missing, load
from photon.config.rights import SERVERS
from photon.config.roles import identity_parts
from photon.config.tls import OPERATOR, Tls, dns_name
from photon.supervision.health import Health, ask_health
from tests.integration.tls_services import SERVICES, identity

ASK_S = 20.0
REFUSED_S = 5.0
CHECK = "/grpc.health.v1.Health/Check"


@dataclass(frozen=True)
class Hands:
    """Certificates as held by different people."""

    good: Path
    other: Path  # issued by another authority
    now: datetime
    then: datetime  # ten days ago, when the now expired certificates were issued for a day
    expired: Path  # issued by the good authority
    early: Path  # issued by the good authority, valid from tomorrow on

    def of(self, directory: Path, who: str) -> Tls:
        at = {self.expired: self.then, self.early: self.now + timedelta(days=2)}.get(directory, self.now)
        return load(directory, who, at)


@pytest.fixture(scope="module")
def hands(tmp_path_factory: pytest.TempPathFactory) -> Hands:
    root, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    made = Hands(root / "good", root / "other", now, now - timedelta(days=10), root / "expired", root / "early")
    everybody = [*(identity(kind) for kind in SERVICES), OPERATOR]
    begin(made.good, "ours", made.then, days=60)
    begin(made.other, "somebody else", made.then, days=60)
    issue_missing(made.good, made.good, everybody, now, days=2)
    issue_missing(made.other, made.other, everybody, now, days=2)
    issue_missing(made.good, made.expired, everybody, made.then, days=1)
    issue_missing(made.good, made.early, everybody, now + timedelta(days=2), days=2)
    return made


def test_every_kind_of_service_is_here() -> None:
    assert {identity_parts(identity(kind)).role for kind in SERVICES} == set(SERVERS)  # type: ignore[union-attr]


# Callers, in addition to those without TLS and without a certificate.
CLIENTS: dict[str, Callable[[Hands, str], Tls]] = {
    "other authority": lambda hands, who: hands.of(hands.other, who),
    "other authority, trusting ours": lambda hands, who: replace(
        hands.of(hands.other, who), authorities=hands.of(hands.good, who).authorities
    ),
    "expired": lambda hands, who: hands.of(hands.expired, who),
    "not valid yet": lambda hands, who: hands.of(hands.early, who),
}


@pytest.mark.parametrize("kind", SERVICES)
async def test_who_has_no_good_certificate_is_not_answered(tmp_path: Path, hands: Hands, kind: str) -> None:
    name, start = SERVICES[kind]
    me = identity(kind)
    async with start(tmp_path, hands.of(hands.good, me)) as address:
        assert await ask_health(address, name, ASK_S, hands.of(hands.good, OPERATOR).to(me)) is Health.SERVING
        assert await ask_health(address, name, REFUSED_S) is Health.SILENT
        for who in (OPERATOR, me):
            for how, of in CLIENTS.items():
                assert await ask_health(address, name, REFUSED_S, of(hands, who).to(me)) is Health.SILENT, (how, who)
        assert not await _answers_without_certificate(address, me, hands)
        assert await ask_health(address, name, ASK_S, hands.of(hands.good, OPERATOR).to(me)) is Health.SERVING


async def _answers_without_certificate(address: str, who: str, hands: Hands) -> bool:
    """TLS, with the right authority trusted, and no certificate shown."""
    credentials = grpc.ssl_channel_credentials(hands.of(hands.good, OPERATOR).authorities)
    options = (("grpc.ssl_target_name_override", dns_name(who)),)
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        call = channel.unary_unary(CHECK)(health_pb2.HealthCheckRequest().SerializeToString(), timeout=REFUSED_S)
        code = await call.code()
    assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return code is grpc.StatusCode.OK


def _impostor(kind: str) -> str:
    """Another service of the deployment."""
    return identity("sink" if kind != "sink" else "joiner")


SHOWN: dict[str, Callable[[Hands, str], Tls]] = {
    "other authority": lambda hands, kind: replace(
        hands.of(hands.other, identity(kind)), authorities=hands.of(hands.good, OPERATOR).authorities
    ),
    "expired": lambda hands, kind: hands.of(hands.expired, identity(kind)),
    "another service's": lambda hands, kind: hands.of(hands.good, _impostor(kind)),
    "an operator's": lambda hands, kind: hands.of(hands.good, OPERATOR),
}


@pytest.mark.parametrize("kind", SERVICES)
async def test_a_service_that_shows_no_good_certificate_is_not_believed(
    tmp_path: Path, hands: Hands, kind: str
) -> None:
    name, start = SERVICES[kind]
    to = hands.of(hands.good, OPERATOR).to(identity(kind))
    for how, shows in SHOWN.items():
        async with start(tmp_path / how, shows(hands, kind)) as address:
            assert await ask_health(address, name, REFUSED_S, to) is Health.SILENT, how
