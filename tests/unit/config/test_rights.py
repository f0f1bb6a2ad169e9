"""The table of rights: complete, as narrow as it says, and the same for every existing method."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace as Request
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from photon.config.rights import OWNED_CALLER, OWNED_SLOT, RIGHTS, refusal
from photon.config.roles import CLIENTS_ONLY, PLACED, Identity, Role, identity_parts

SOURCE = Path(__file__).parents[3] / "src"
REGISTRY = "/photon.v1.Registry/"


def protos() -> list[str]:
    """Modules of every .proto file, found through the links in src/photon."""
    found = [*SOURCE.glob("photon/*/*.proto"), *SOURCE.glob("photon/*/*/*.proto")]
    return sorted(str(path.relative_to(SOURCE)).removesuffix(".proto").replace("/", ".") + "_pb2" for path in found)


def methods() -> dict[str, Any]:
    """Methods of every service: full name -> descriptor."""
    files = [importlib.import_module(name).DESCRIPTOR for name in protos()] + [health_pb2.DESCRIPTOR]
    return {
        f"/{service.full_name}/{method.name}": method
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    }


def asked(method: str, who: str, server: str = "registry-r1", request: Any = None, **owner: str) -> str | None:
    """``owner``: datacentre of the slot in the request."""
    return refusal(method, who, server, request or Request(), lambda kind, _: owner.get(kind, ""))


def test_every_method_of_every_proto_stands_in_the_table_and_nothing_else() -> None:
    assert len(protos()) >= 6
    assert set(RIGHTS) == set(methods())


def test_every_condition_names_fields_that_the_requests_have() -> None:
    for name, method in methods().items():
        for right in RIGHTS[name].values():
            for path in filter(None, (right.names_own, right.without)):
                message = method.input_type
                for field in path.split("."):
                    assert field in message.fields_by_name, f"{name}: {path}"
                    message = message.fields_by_name[field].message_type
            if right.owns:
                assert {OWNED_SLOT: "slot", OWNED_CALLER: "caller"}[right.owns] in method.input_type.fields_by_name


def test_conditions_on_places_are_only_for_roles_that_have_one() -> None:
    for name, roles in RIGHTS.items():
        for role, right in roles.items():
            if right.same_datacentre or right.names_own or right.owns:
                assert role in PLACED - {Role.REGISTRY}, f"{name}: {role}"


@pytest.mark.parametrize("method", ["/photon.v1.Registry/Nothing", "/photon.v1.Nobody/Join", "", "/"])
@pytest.mark.parametrize("who", [*(f"{role}-east" for role in sorted(PLACED)), "operator", "wan"])
def test_what_the_table_lacks_is_refused_to_everybody(method: str, who: str) -> None:
    assert "it is for nobody" in (asked(method, who) or "")


@pytest.mark.parametrize("who", ["", "joiner", "joiner-", "operators", "root", "wan-east", "ca", "Joiner-east"])
def test_who_has_no_identity_of_ours_is_refused_everything(who: str) -> None:
    assert identity_parts(who) is None
    assert all(asked(method, who) for method in RIGHTS)


@pytest.mark.parametrize(
    ("identity", "parts"),
    [
        ("datacentre-us-east", Identity(Role.DATACENTRE, "us-east")),
        ("registry-r1", Identity(Role.REGISTRY, "r1")),
        ("operator", Identity(Role.OPERATOR, "")),
        ("operator-alice", Identity(Role.OPERATOR, "alice")),
        ("wan", Identity(Role.WAN, "")),
    ],
)
def test_identities_are_taken_apart(identity: str, parts: Identity) -> None:
    assert identity_parts(identity) == parts


ONLY_OPERATORS = (
    *(f"{REGISTRY}{method}" for method in ("RetireSlot", "Reshard")),
    *(method for method in RIGHTS if method.startswith("/photon.v1.RegistryOperator/")),
    "/photon.v1.EventStore/Forget",
    "/photon.v1.Wan/Set",
    "/photon.v1.Wan/List",
)


@pytest.mark.parametrize("method", ONLY_OPERATORS)
def test_what_cannot_be_taken_back_is_for_operators_only(method: str) -> None:
    for role in Role:
        who = f"{role}-east" if role in PLACED else str(role)
        assert (asked(method, who) is None) == (role is Role.OPERATOR), who
    assert asked(method, "operator-alice") is None


def test_a_datacentre_does_not_take_back() -> None:
    for method in ("RetireSlot", "Reshard"):
        why = asked(f"{REGISTRY}{method}", "datacentre-east")
        assert why is not None
        assert why.startswith(f"datacentre-east may not call photon.v1.Registry/{method}: it is for ")
        assert "\n" not in why
    for method in ("Insert", "LookUp", "OpenSlot", "Describe", "ReadWitness", "ExtendWitness", "ListSlots"):
        request = Request(slot=Request(datacentre="east"))
        assert asked(f"{REGISTRY}{method}", "datacentre-east", request=request) is None


def test_nobody_inserts_but_who_keeps_a_redo_log() -> None:
    assert set(RIGHTS[f"{REGISTRY}Insert"]) == {Role.DATACENTRE, Role.SPARK}
    assert set(RIGHTS[f"{REGISTRY}ExtendWitness"]) == {Role.DATACENTRE}


def test_slots_are_opened_in_the_callers_datacentre_only() -> None:
    west = Request(slot=Request(datacentre="west"))
    for method in ("OpenSlot", "Insert"):
        why = asked(REGISTRY + method, "datacentre-east", request=west)
        said = (
            f"datacentre-east may not call photon.v1.Registry/{method} for a slot of datacentre west: "
            "the caller belongs to east"
        )
        assert why == said
        assert asked(REGISTRY + method, "datacentre-west", request=west) is None


def test_the_registry_knows_whose_slot_is_meant() -> None:
    for method in ("ReadWitness", "ExtendWitness"):
        assert asked(REGISTRY + method, "datacentre-east", slot="east") is None
        assert asked(REGISTRY + method, "datacentre-east", slot="") is None  # never opened: its handler says so
        assert "a slot of datacentre west" in (asked(REGISTRY + method, "datacentre-east", slot="west") or "")
    request = Request(slot=Request(datacentre=""))
    assert asked(f"{REGISTRY}Insert", "datacentre-east", request=request, caller="east") is None
    assert "a slot of datacentre west" in (
        asked(f"{REGISTRY}Insert", "datacentre-east", request=request, caller="west") or ""
    )


def test_a_verifier_reopens_by_token_and_not_by_an_operators_word() -> None:
    assert asked(f"{REGISTRY}Reopen", "datacentre-east", request=Request(operator=False)) is None
    why = asked(f"{REGISTRY}Reopen", "datacentre-east", request=Request(operator=True))
    assert why is not None
    assert "only operators may do that" in why
    assert asked(f"{REGISTRY}Reopen", "operator", request=Request(operator=True)) is None


@pytest.mark.parametrize(
    "method",
    [
        "Joiner/Join", "EventStore/LookUp", "EventStore/Progress", "EventStore/Arrived", "EventStore/Seek",
        "Cache/Feed", "Cache/Find",
    ],
)  # fmt: skip
def test_pipelines_keep_to_themselves(method: str) -> None:
    assert asked(f"/photon.v1.{method}", "datacentre-east", "datacentre-east") is None
    why = asked(f"/photon.v1.{method}", "datacentre-east", "datacentre-west")
    assert why is not None
    assert why.endswith("of datacentre-west: ask a server of its own datacentre, east")
    assert asked(f"/photon.v1.{method}", "datacentre-east", "") is not None


def test_replicas_talk_to_replicas_only() -> None:
    for method in ("/photon.v1.RaftPeer/Exchange", f"{REGISTRY}ReadClock"):
        assert set(RIGHTS[method]) == {Role.REGISTRY}


def test_everybody_may_ask_for_health() -> None:
    for role in Role:
        who = f"{role}-east" if role in PLACED else str(role)
        assert asked("/grpc.health.v1.Health/Check", who) is None


def test_who_is_called_by_nobody_serves_nothing() -> None:
    assert Role.OPERATOR in CLIENTS_ONLY
    assert not CLIENTS_ONLY & {Role.REGISTRY, Role.DATACENTRE, Role.WAN}
