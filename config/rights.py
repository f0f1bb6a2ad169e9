"""The complete table of roles and the methods they may call. A method not listed here is refused to everybody.

config/authorisation.py checks this table before any handler runs; docs/security.md shows it, and a test compares
both. It applies over TLS only: a plain connection has no identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from photon.config.roles import CLIENTS_ONLY, Identity, Role, identity_parts


@dataclass(frozen=True, slots=True)
class Right:
    """The conditions under which a role may call a method. All conditions that are set must hold."""

    same_datacentre: bool = False  # only a service of the caller's own datacentre
    names_own: str = ""  # path of the request's field that must name the caller's datacentre if it is set
    owns: str = ""  # kind of thing in the request that must belong to the caller's datacentre, such as OWNED_SLOT
    without: str = ""  # flag of the request that must not be set, as only an operator may vouch for it

    def said(self) -> str:
        """Describes the conditions, in the words of docs/security.md."""
        said = [
            "here" if self.same_datacentre else "",
            "own slots" if self.names_own or self.owns else "",
            f"without `{self.without}`" if self.without else "",
        ]
        return ", ".join(filter(None, said)) or "yes"


OWNED_SLOT = "slot"  # the slot that the request names
OWNED_CALLER = "caller"  # the slot of the incarnation that makes the request

# (OWNED_SLOT or OWNED_CALLER, request) -> datacentre; empty if unknown here: its handler decides.
DatacentreOf = Callable[[str, Any], str]

_ANY = Right()
_HERE = Right(same_datacentre=True)
_OWN = Right(names_own="datacentre")
_OPERATOR = {Role.OPERATOR: _ANY}
_EVERYBODY = dict.fromkeys(Role, _ANY)
_JOINING = (Role.DATACENTRE, Role.SPARK)  # the joiners of a datacentre's events: its own processes, or Spark

Rights = Mapping[str, Mapping[Role, Right]]

RIGHTS: Rights = {
    "/grpc.health.v1.Health/Check": _EVERYBODY,
    "/grpc.health.v1.Health/List": {},  # not implemented by gRPC's own health service
    "/grpc.health.v1.Health/Watch": _EVERYBODY,
    "/photon.v1.Registry/OpenSlot": dict.fromkeys(_JOINING, Right(names_own="slot.datacentre")),
    "/photon.v1.Registry/Insert": dict.fromkeys(_JOINING, Right(names_own="slot.datacentre", owns=OWNED_CALLER)),
    "/photon.v1.Registry/Clear": {**dict.fromkeys(_JOINING, _ANY), **_OPERATOR},
    "/photon.v1.Registry/ClearBelow": {Role.DATACENTRE: _ANY, **_OPERATOR},
    "/photon.v1.Registry/LookUp": {**dict.fromkeys(_JOINING, _ANY), **_OPERATOR},
    "/photon.v1.Registry/Describe": {**dict.fromkeys(_JOINING, _ANY), **_OPERATOR},
    "/photon.v1.Registry/ReadWitness": {**dict.fromkeys(_JOINING, Right(owns=OWNED_SLOT)), **_OPERATOR},
    "/photon.v1.Registry/ExtendWitness": {Role.DATACENTRE: Right(owns=OWNED_SLOT)},
    "/photon.v1.Registry/ListSlots": {Role.DATACENTRE: _ANY, **_OPERATOR},
    "/photon.v1.Registry/Trace": {**dict.fromkeys(_JOINING, _ANY), **_OPERATOR},
    "/photon.v1.Registry/JudgeBy": dict.fromkeys(_JOINING, _OWN),
    "/photon.v1.Registry/KeepSamples": {**dict.fromkeys(_JOINING, _OWN), **_OPERATOR},
    "/photon.v1.Registry/ScanOwned": {Role.DATACENTRE: _ANY, **_OPERATOR},
    "/photon.v1.Registry/ScanReopened": {**dict.fromkeys(_JOINING, _ANY), **_OPERATOR},
    "/photon.v1.Registry/Reopen": {Role.DATACENTRE: Right(without="operator"), **_OPERATOR},
    "/photon.v1.Registry/RetireSlot": _OPERATOR,
    "/photon.v1.Registry/Reshard": _OPERATOR,
    "/photon.v1.Registry/ReadClock": {Role.REGISTRY: _ANY},
    "/photon.v1.RegistryOperator/Inspect": _OPERATOR,
    "/photon.v1.RegistryOperator/Barrier": _OPERATOR,
    "/photon.v1.RegistryOperator/Export": _OPERATOR,
    "/photon.v1.RegistryOperator/TransferLeader": _OPERATOR,
    "/photon.v1.RegistryOperator/OpenShard": _OPERATOR,
    "/photon.v1.RegistryOperator/RegisterAgain": _OPERATOR,
    "/photon.v1.RegistryOperator/Follow": _OPERATOR,
    "/photon.v1.RaftPeer/Exchange": {Role.REGISTRY: _ANY},
    "/photon.v1.Timestamps/Take": {Role.OBSERVE: _ANY, Role.SPARK: _ANY, **_OPERATOR},
    "/photon.v1.EventStore/LookUp": dict.fromkeys(_JOINING, _HERE),
    "/photon.v1.EventStore/Progress": {**dict.fromkeys(_JOINING, _HERE), **_OPERATOR},
    "/photon.v1.EventStore/Forget": _OPERATOR,
    "/photon.v1.EventStore/Arrived": dict.fromkeys(_JOINING, _HERE),
    "/photon.v1.EventStore/Seek": dict.fromkeys(_JOINING, _HERE),
    "/photon.v1.Cache/Feed": {Role.DATACENTRE: _HERE},
    "/photon.v1.Cache/Find": {Role.DATACENTRE: _HERE},
    "/photon.v1.Cache/Counts": {Role.DATACENTRE: _HERE, **_OPERATOR},
    "/photon.v1.Joiner/Join": {Role.DATACENTRE: _HERE},
    "/photon.v1.Copies/Open": {Role.DATACENTRE: _OWN},
    "/photon.v1.Copies/Look": {Role.DATACENTRE: _OWN},
    "/photon.v1.Copies/Extend": {Role.DATACENTRE: _OWN},
    "/photon.v1.Copies/Read": {Role.DATACENTRE: _OWN},
    "/photon.v1.Metrics/Read": {Role.DATACENTRE: _ANY, **_OPERATOR},
    "/photon.v1.Explain/Event": {Role.DATACENTRE: _ANY, **_OPERATOR},
    "/photon.v1.Wan/Set": _OPERATOR,
    "/photon.v1.Wan/List": _OPERATOR,
}


def refusal(
    method: str, caller: str, server: str, request: Any, datacentre_of: DatacentreOf | None = None
) -> str | None:
    """Returns one line that says why the call is refused; ``None`` if it is permitted.

    ``caller``: identity in the presented certificate, empty if none. ``server``: identity of the called service.
    ``request`` is ``None`` for a stream, whose conditions on requests cannot be checked here.
    """
    who = identity_parts(caller)
    roles = RIGHTS.get(method, {})
    right = roles.get(who.role) if who is not None else None
    if who is None or right is None:
        who_may = " and ".join(sorted(roles)) or "nobody"
        return f"{_named(caller, method)}: it is for {who_may}; present the certificate of such a process"
    at = identity_parts(server)
    if right.same_datacentre and (at is None or at.place != who.place):
        return f"{_named(caller, method)} of {server}: ask a server of its own datacentre, {who.place}"
    if request is None:
        return None
    if right.without and _field(request, right.without):
        return f"{_named(caller, method)} with `{right.without}` set: only operators may do that"
    return _others_slot(right, who, caller, method, request, datacentre_of)


def _others_slot(
    right: Right, who: Identity, caller: str, method: str, request: Any, datacentre_of: DatacentreOf | None
) -> str | None:
    places = [
        str(_field(request, right.names_own) or "") if right.names_own else "",
        datacentre_of(right.owns, request) if right.owns and datacentre_of is not None else "",
    ]
    for place in places:
        if place and place != who.place:
            return f"{_named(caller, method)} for a slot of datacentre {place}: the caller belongs to {who.place}"
    return None


def _field(request: Any, path: str) -> Any:
    for name in path.split("."):
        request = getattr(request, name)
    return request


def _named(caller: str, method: str) -> str:
    return f"{caller or 'a certificate without an identity'} may not call {method[1:]}"


SERVERS = tuple(role for role in Role if role not in CLIENTS_ONLY)  # roles that listen
