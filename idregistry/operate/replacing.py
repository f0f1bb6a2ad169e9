"""Checks that a replica whose disk is lost can be replaced safely, and finds the next membership. Pure.

An epoch's members are fixed, and each replica's directory lists them.

Why the order matters: an acknowledged entry may exist only on the lost disk and on one less than a majority of the
others. If a new, empty replica simply took the lost one's place, it could form a majority with replicas that lack the
entry. So *every* survivor first applies all acknowledged entries (a barrier) and records the next membership. The new
replica starts from a state after the barrier; and each replica begins the next epoch with a restart and then ignores
messages of the previous one. A replica is in one epoch only, and once a survivor has noted the next membership it
ignores the lost replica, even if that comes back. So there are never two majorities: an entry acknowledged after the
barrier is on as many survivors as a majority has, and every majority of the new members includes one of them.

A survivor never notes two memberships for one epoch, and the new replica is filled only when all have noted its
membership: so two operators cannot create two replicas. If only some survivors have noted it and restart, neither
epoch may have a majority: the epoch in the deployment file then moves the others to it. This is safe even if the new
replica is empty: any noted membership means that all survivors have passed the barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from photon.config.errors import PhotonError
from photon.config.settings import Replica
from photon.idregistry.operate.inspection import GroupRow, Inspection, epoch_of, group_rows


class ReplaceRefused(PhotonError):
    """The replacement is unsafe or impossible. The message is one line: the reason, and what to do first."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange of one replica: the present membership and the next epoch."""

    old: str
    new: str
    epoch: int  # the next one
    members: Mapping[str, str]  # the present members: name -> address
    address: str  # the new replica's

    @property
    def next(self) -> dict[str, str]:
        """The members of the next epoch."""
        kept = {name: address for name, address in self.members.items() if name != self.old}
        return kept | {self.new: self.address}


def survivors(replicas: Mapping[str, Replica], old: str, new: str) -> dict[str, str]:
    """Returns name -> address of the remaining replicas, from a deployment file that already lists the new replica
    instead of the old one.

    Raises ReplaceRefused.
    """
    if new not in replicas or old in replicas:
        raise ReplaceRefused(
            f"{new}: first replace the table of {old} in the deployment file with [registry.replicas.{new}]; "
            f"there are: {', '.join(sorted(replicas))}"
        )
    return {name: replica.address for name, replica in replicas.items() if name != new}


def exchange(found: Mapping[str, Inspection], old: str, new: str, address: str) -> Exchange:
    """Plans the exchange from the answers of the survivors in ``found``. Raises ReplaceRefused."""
    members: dict[str, str] = {}
    epoch = 0
    for name, each in found.items():
        if each.reply is None:
            raise ReplaceRefused(
                f"{name} does not answer ({each.why}): every survivor, not only a majority, must have all "
                "acknowledged entries before a new replica may vote; restart it first"
            )
        if members and (sorted(each.reply.members) != sorted(members) or each.reply.epoch != epoch):
            raise ReplaceRefused(
                f"{name} is in epoch {each.reply.epoch} of {', '.join(sorted(each.reply.members))}; others are in "
                f"{epoch} of {', '.join(sorted(members))}: restart replicas of the lower epoch first; for one that "
                f"stays in it, write epoch = {epoch_of(found)} under [registry] in its file, and restart it"
            )
        members, epoch = dict(each.reply.members), each.reply.epoch
    if new in members:
        raise ReplaceRefused(
            f"{new}: is already a member; the new replica needs a name never used before, as votes of the old "
            "disk must not count for it"
        )
    if {*members} != {*found, old}:
        raise ReplaceRefused(
            f"the members are {', '.join(sorted(members))}; the deployment file must list all of them except "
            f"{old}, and {new}"
        )
    return Exchange(old, new, epoch + 1, members, address)


def check_survivors(found: Mapping[str, Inspection]) -> list[GroupRow]:
    """Returns the groups if it is safe to begin the exchange. Raises ReplaceRefused."""
    for name, each in found.items():
        for group in each.reply.groups if each.reply is not None else ():
            if not group.healthy or not group.writable:
                raise ReplaceRefused(f"{name}: group {group.group} is not healthy: see photon doctor registry")
    rows = group_rows(found)
    for row in rows:
        if not row.leader:
            raise ReplaceRefused(f"group {row.group} has no leader: wait for one, or restart more replicas")
    return rows


def behind(found: Mapping[str, Inspection], barriers: Mapping[int, int]) -> list[str]:
    """Returns, for display, the survivors that have not applied all ``barriers`` (group -> index); else empty."""
    said = []
    for name, each in found.items():
        for group, index in barriers.items():
            facts = each.group(group)
            if facts is None or facts.applied < index:
                said.append(f"{name} in group {group}")
    return said


def not_there_yet(found: Mapping[str, Inspection]) -> list[str]:
    """Returns, for display, the steps missing until the new membership is in force; empty once it is."""
    said = []
    epoch = epoch_of(found)
    for name, each in found.items():
        if each.reply is None:
            said.append(f"{name} does not answer ({each.why})")
        elif each.reply.epoch != epoch or sorted(each.reply.members) != sorted(found):
            said.append(f"{name} runs in epoch {each.reply.epoch}: restart it")
    for row in group_rows(found):
        if not row.leader:
            said.append(f"group {row.group} has no leader")
        said += [f"{lag.replica} lacks group {row.group}" for lag in row.lags if lag.behind is None]
        said += [
            f"{lag.replica} is {lag.behind} entries behind in group {row.group}" for lag in row.lags if lag.behind
        ]
    return said
