"""Roles: the part of an identity that describes its process, apart from the datacentre or replica."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Role(enum.StrEnum):
    """The first word of an identity."""

    REGISTRY = "registry"
    DATACENTRE = "datacentre"  # all parts of a datacentre, in one process or in several
    COMPUTE = "compute"
    OBSERVE = "observe"
    SINK = "sink"
    SPARK = "spark"
    WAN = "wan"
    OPERATOR = "operator"


# Roles whose identities name a replica (``registry-r1``), a computation (``compute-spend``), observers
# (``observe-dedup``), a sink (``sink-lake``) or a datacentre (``datacentre-east``).
PLACED = frozenset(Role) - {Role.WAN, Role.OPERATOR}
# Nobody calls them, so their certificates are not for servers: none of them can pose as a service.
CLIENTS_ONLY = frozenset({Role.OPERATOR})

_ROLES = {str(role): role for role in Role}


@dataclass(frozen=True, slots=True)
class Identity:
    role: Role
    place: str  # a datacentre, or the name of a replica, of observers or of an operator; empty if none


def identity(role: Role, place: str) -> str:
    """Returns the identity shared by all processes of a role in a datacentre. ``place``: see Identity."""
    return f"{role}-{place}"


def identity_parts(identity: str) -> Identity | None:
    """Splits an identity: the place of ``datacentre-us-east`` is ``us-east``. ``None`` if it is not valid."""
    word, dash, place = identity.partition("-")
    role = _ROLES.get(word)
    if role is None or (dash and not place) or (role in PLACED and not place) or (role is Role.WAN and place):
        return None
    return Identity(role, place)
