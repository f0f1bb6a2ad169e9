"""Replacing a replica whose disk is lost: the checks, and the deployment file of the next membership epoch. Pure.

Membership is static: the members of an epoch are those of the deployment file. Why the order matters: an entry that
was acknowledged may lie on the lost disk and on a bare majority less one of the others. If a new, empty replica
simply took the place, those that lack the entry could elect each other together with it. So *every* survivor first
applies all that was acknowledged (a barrier), the new one starts from a state at the barrier, and all begin the next
epoch, in which nobody listens to messages of the one before. Between the two a replica is in one epoch only, so no
two majorities exist at a time; what is acknowledged after the barrier lies on as many survivors as a majority has,
which every majority of the new members meets.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from photon.config.errors import PhotonError
from photon.config.loader import ConfigError, convert
from photon.config.settings import NAME, Replica, Settings
from photon.idregistry.operate.inspection import GroupRow, Inspection, group_rows


class ReplaceRefused(PhotonError):
    """It would be unsafe, or cannot be done so. One line: why, and what to do first."""


@dataclass(frozen=True, slots=True)
class Exchange:
    old: str
    new: str
    replica: Replica  # the new one's table


def after(settings: Settings, wanted: Exchange) -> Settings:
    registry = settings.registry
    replicas = {
        wanted.new if name == wanted.old else name: wanted.replica if name == wanted.old else replica
        for name, replica in registry.replicas.items()
    }
    changed = msgspec.structs.replace(registry, replicas=replicas, epoch=registry.epoch + 1)
    return msgspec.structs.replace(settings, registry=changed)


def check_wanted(settings: Settings, wanted: Exchange) -> None:
    """Raises ReplaceRefused."""
    replicas = settings.registry.replicas
    if wanted.old not in replicas:
        raise ReplaceRefused(f"{wanted.old}: not in [registry.replicas]; there are: {', '.join(sorted(replicas))}")
    if not re.fullmatch(NAME, wanted.new):
        raise ReplaceRefused(f"{wanted.new}: a name is 1 to 40 of a-z, 0-9, - and _, starting with a letter or digit")
    if wanted.new in replicas:
        raise ReplaceRefused(
            f"{wanted.new}: is a replica already; the new one needs a name that was never used: the old disk's votes "
            "must not count for it"
        )
    for name, replica in replicas.items():
        if name != wanted.old and replica.address == wanted.replica.address:
            raise ReplaceRefused(f"{wanted.replica.address}: is the address of replica {name}")


def check_survivors(found: Mapping[str, Inspection], old: str, epoch: int) -> list[GroupRow]:
    """The groups, once it is safe to begin. Raises ReplaceRefused."""
    if found[old].reply is not None:
        raise ReplaceRefused(f"{old} answers: stop it first, and see to it that its disk never comes back")
    for name, each in found.items():
        if name == old:
            continue
        if each.reply is None:
            raise ReplaceRefused(
                f"{name} does not answer ({each.why}): every survivor, not only a majority, must have all that was "
                "acknowledged before a new one may vote; bring it back first"
            )
        if sorted(each.reply.members) != sorted(found) or each.reply.epoch != epoch:
            raise ReplaceRefused(
                f"{name} is in epoch {each.reply.epoch} of {', '.join(sorted(each.reply.members))}, the file says "
                f"epoch {epoch} of {', '.join(sorted(found))}: finish the change before, or mend the file"
            )
        for group in each.reply.groups:
            if not group.healthy or not group.writable:
                raise ReplaceRefused(f"{name}: group {group.group} is not healthy: see photon doctor registry")
    rows = group_rows({name: each for name, each in found.items() if name != old})
    for row in rows:
        if not row.leader:
            raise ReplaceRefused(f"group {row.group} has no leader: wait for one, or bring more replicas back")
    return rows


def behind(found: Mapping[str, Inspection], old: str, barriers: Mapping[int, int]) -> list[str]:
    """Which survivors have not applied which barrier yet (group -> index); none: go on. For people."""
    said = []
    for name, each in found.items():
        if name == old:
            continue
        for group, index in barriers.items():
            facts = each.group(group)
            if facts is None or facts.applied < index:
                said.append(f"{name} in group {group}")
    return said


def not_there_yet(found: Mapping[str, Inspection], epoch: int) -> list[str]:
    """What is still missing before the new membership stands; none: done. For people."""
    said = []
    for name, each in found.items():
        if each.reply is None:
            said.append(f"{name} does not answer ({each.why})")
        elif each.reply.epoch != epoch or sorted(each.reply.members) != sorted(found):
            said.append(f"{name} runs in epoch {each.reply.epoch}: restart it with the new file")
    for row in group_rows(found):
        if not row.leader:
            said.append(f"group {row.group} has no leader")
        said += [f"{lag.replica} lacks group {row.group}" for lag in row.lags if lag.behind is None]
        said += [
            f"{lag.replica} is {lag.behind} entries behind in group {row.group}" for lag in row.lags if lag.behind
        ]
    return said


# -- the deployment file --------------------------------------------------------------------------------------------
def edited(text: str, settings: Settings, wanted: Exchange, where: str) -> str:
    """The deployment file with the new replica in the old one's table, and the next epoch; comments stay.

    Raises ReplaceRefused when the file is written so that this cannot be done line by line.
    """
    lines = text.splitlines(keepends=True)
    lines = _with_replica(lines, wanted)
    result = "".join(_with_epoch(lines, settings.registry.epoch + 1))
    try:
        found = convert(tomllib.loads(result), where)
    except (ConfigError, tomllib.TOMLDecodeError):
        found = None
    if found != after(settings, wanted):
        raise ReplaceRefused(
            f"{where}: cannot be edited line by line: write {wanted.old} as a table [registry.replicas.{wanted.old}] "
            "with its keys on lines of their own, without overrides, and call this again"
        )
    return result


def _header(line: str) -> str | None:
    """``[a.b]`` as a.b, without quotes and spaces."""
    match = re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line)
    return None if match is None else re.sub(r"[\s\"']", "", match[1])


def _with_replica(lines: list[str], wanted: Exchange) -> list[str]:
    keys = [f"{key} = {_quoted(value)}\n" for key, value in _keys(wanted.replica).items()]
    new = [f"[registry.replicas.{wanted.new}]\n", *keys]
    return _table(
        lines, f"registry.replicas.{wanted.old}", lambda header: new, "address|directory|datacentre|region"
    )[0]


def _with_epoch(lines: list[str], epoch: int) -> list[str]:
    key = f"epoch = {epoch}\n"
    out, found = _table(
        lines, "registry", lambda header: [header if header.endswith("\n") else header + "\n", key], "epoch"
    )
    if found:
        return out
    newline = "" if not out or out[-1].endswith("\n") else "\n"
    return [*out, f"{newline}\n[registry]\n{key}"]  # at the end: keys of the file's top are above


def _table(lines: list[str], name: str, begin: Callable[[str], list[str]], keys: str) -> tuple[list[str], bool]:
    """With another beginning of a table in place of its header, and without these keys in it; whether it is there."""
    out: list[str] = []
    inside = found = False
    for line in lines:
        header = _header(line)
        if header is not None:
            inside = header == name
            if inside:
                out += begin(line)
                found = True
                continue
        if not (inside and re.match(rf"\s*({keys})\s*=", line)):
            out.append(line)
    return out, found


def _keys(replica: Replica) -> dict[str, str]:
    values = {"address": replica.address, "directory": replica.directory}
    values |= {"datacentre": replica.datacentre, "region": replica.region}
    return {key: value for key, value in values.items() if value}


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
