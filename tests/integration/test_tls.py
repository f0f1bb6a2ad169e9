"""A small deployment entirely over mutual TLS: a caller without a certificate of its authority is refused, and told
why."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from photon.cli.errors import FAILED, USAGE
from photon.config.certificate_files import begin, issue_missing, load
from photon.fleet.processes import identities
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.clock_offsets import Agreement
from photon.lab.demo.deployment import CERTIFICATES, Shape
from photon.supervision.ports import free_ports
from tests.integration.commands import Result, drawn_seed, photon, running
from tests.integration.rig import Rig

STRANGER = "stranger"
OTHER_AUTHORITY = "its certificate is not from the authority in our ca.crt"
NOT_OURS = "or does not trust our certificate's authority"
NO_TLS = "or demands TLS and [tls] is missing here"
OTHER_PROCESS = "its certificate belongs to another process; is the address right?"
ASK_S = 10.0
REFUSED_S = 2.0  # a refusal is known at once; a client goes on asking for its whole time-out
PATIENCE_S = 40.0


def _rig(tmp_path: Path) -> Rig:
    """One datacentre, one joiner, three replicas, a proxy; and the certificates of a foreign authority."""
    shape = Shape(datacentres=("east",), joiners=1, round_trip_s=0.001, tls=True)
    rig = Rig(tmp_path, drawn_seed(), seconds=3.0, shape=shape)
    directory, now = tmp_path / STRANGER, datetime.now(UTC)
    begin(directory, "somebody else", now, days=30)
    issue_missing(directory, directory, identities(rig.demo.deployment.settings), now, days=30)
    return rig


async def test_a_deployment_over_tls_answers_its_own_certificates_only(tmp_path: Path) -> None:
    """While it joins; everything is compared with the truth afterwards."""
    rig = _rig(tmp_path)

    async def drill(rig: Rig) -> None:
        await _registry_says_why(rig, tmp_path)
        await _replicas_read_each_others_clocks(rig, tmp_path)
        await asyncio.to_thread(_commands_say_why, rig, tmp_path)

    await rig.run(drill)


async def _registry_says_why(rig: Rig, directory: Path) -> None:
    now = datetime.now(UTC)
    own, stranger = (load(directory / each, "datacentre-east", now) for each in (CERTIFICATES, STRANGER))
    forged = replace(stranger, authorities=own.authorities)
    address = rig.demo.replicas["r1"]
    by_certificate = ((None, NO_TLS), (stranger, OTHER_AUTHORITY), (forged, NOT_OURS))
    for name, tls, why in (*(("r1", *case) for case in by_certificate), ("r2", own, OTHER_PROCESS)):
        client = RegistryClient({name: address}, tls=tls)
        try:
            assert await client.describe(timeout=REFUSED_S) is None
            assert client.problem.startswith(f"no registry replica answers; registry replica {name} at {address}:")
            assert why in client.problem
        finally:
            await client.close()


async def _replicas_read_each_others_clocks(rig: Rig, directory: Path) -> None:
    """Under their own certificates."""
    own = load(directory / CERTIFICATES, "datacentre-east", datetime.now(UTC))
    client = RegistryClient(rig.demo.replicas, tls=own)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            described = await client.describe(timeout=ASK_S)
            assert described is not None, client.problem
            if all(offset.known for offset in described.clock.peers.values()):
                break
            assert time.monotonic() < deadline, described.clock
            await asyncio.sleep(0.1)
        assert len(described.clock.peers) == 2
        assert described.clock.agreement is Agreement.AGREES, described.clock
    finally:
        await client.close()


def _commands_say_why(rig: Rig, directory: Path) -> None:
    """The command line and a service, with the wrong certificates, with none, and with files that are missing."""
    file = rig.demo.deployment.file
    table = f'[tls]\ndirectory = "{CERTIFICATES}"\n'
    other = _deployment_file(file, "other.toml", table, table.replace(CERTIFICATES, STRANGER))
    plain = _deployment_file(file, "plain.toml", table, "")
    missing = _deployment_file(file, "missing.toml", table, table.replace(CERTIFICATES, "nowhere"))
    nowhere = str(directory / "nowhere" / "ca.crt")
    assert photon("status", "wan", "--config", file).code == 0
    _one_line(photon("status", "wan", "--config", other), FAILED, OTHER_AUTHORITY)
    _one_line(photon("status", "wan", "--config", plain), FAILED, NO_TLS)
    _one_line(photon("status", "wan", "--config", missing), USAGE, nowhere, "photon certs")
    for config, why in ((other, OTHER_AUTHORITY), (plain, NO_TLS)):
        _joiner_says(config, directory / f"{config.stem}.log", why)
    _one_line(photon("serve", "joiner", "--config", missing), USAGE, nowhere)


def _deployment_file(file: Path, name: str, old: str, new: str) -> Path:
    """The same deployment with a change in its file; processes run from it keep off the real ports and state."""
    text = file.read_text().replace('"east/state"', f'"{name}/state"')
    assert text.count(old) == 1
    text = text.replace(old, new)
    made = file.with_name(name)
    made.write_text(re.sub(r'joiner = \["[^"]*"\]', f'joiner = "127.0.0.1:{free_ports(1)[0]}"', text))
    return made


def _joiner_says(config: Path, log: Path, why: str) -> None:
    with running("serve", "joiner", "--config", config, log=log) as process:
        deadline = time.monotonic() + PATIENCE_S
        while why not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
    [line] = [line for line in log.read_text().splitlines() if why in line]
    assert "waiting for the registry" in line


def _one_line(result: Result, code: int, *parts: str) -> None:
    assert (result.code, result.out) == (code, "")
    [line] = result.err.splitlines()
    for part in parts:
        assert part in line
