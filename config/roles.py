"""Roles: what an identity says about its process, apart from the datacentre or replica."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Role(enum.StrEnum):
    """The first word of an identity."""

    REGISTRY = "registry"
    EVENTSTORE = "eventstore"
    CACHE = "cache"
    JOINER = "joiner"
    DISPATCHER = "dispatcher"
    VERIFIER = "verifier"
    RELAY = "relay"
    COPIES = "copies"
    COMPUTE = "compute"
    OBSERVE = "observe"
    SINK = "sink"
    STATUS = "status"
    SPARK = "spark"
    WAN = "wan"
    OPERATOR = "operator"


PLACED = frozenset(Role) - {Role.WAN, Role.OPERATOR}
"""Their identities name a replica (``registry-r1``), a computation (``compute-spend``), observers
(``observe-dedup``), a sink (``sink-lake``) or a datacentre (``joiner-east``)."""
CLIENTS_ONLY = frozenset({Role.OPERATOR, Role.SPARK, Role.STATUS})
"""Nobody calls them, so their certificates are not for servers: none of them can pose as a service."""

_ROLES = {str(role): role for role in Role}


@dataclass(frozen=True, slots=True)
class Identity:
    role: Role
    place: str  # a datacentre; of a replica, of observers and of an operator their name; empty: none


def identity(role: Role, place: str) -> str:
    """Of all processes of a role in a datacentre: how many there are may change. ``place``: see Identity."""
    return f"{role}-{place}"


def identity_parts(identity: str) -> Identity | None:
    """None: no identity of ours. ``joiner-us-east`` is the joiner of ``us-east``."""
    word, dash, place = identity.partition("-")
    role = _ROLES.get(word)
    if role is None or (dash and not place) or (role in PLACED and not place) or (role is Role.WAN and place):
        return None
    return Identity(role, place)
