"""Finds the newest rule for the verdict *unmatched*, the one from the file changed last. Pure.

An operator gives a changed ``[join.NAME]`` to one process after the other. Until all have it, a process under the old
rule may miss a primary event that the others find, and its verdict would be final. So each process announces its rule
when it starts, and gives no such verdict while another rule is the newest.

Neither a clock nor a number in the file distinguishes old from new. A rule becomes the newest when announced by a
process that

- worked under the newest one before: its file was changed, forwards or back; or
- has another rule than before, or never announced one, and the rule was never the newest.

A process that restarts with its old file changes nothing, nor does one with an old file but no lasting name. A
datacentre that is permanently down blocks nothing: the others do not wait for its processes.
"""

from __future__ import annotations

import msgspec

from photon.idregistry.core import commands as c

RULES_MAX = 64  # per join: older ones are forgotten
PROCESSES_MAX = 1_024  # per join: the earliest announcer is forgotten


class VerdictRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The announcements of one join's processes."""

    rules: tuple[c.VerdictRule, ...] = ()  # in the order in which they became the newest
    brought: c.Text = ""  # the process that first announced the newest rule
    processes: dict[c.Name, c.VerdictRule] = {}  # process -> its rule; the last one to change comes last

    @property
    def newest(self) -> bytes:
        return self.rules[-1] if self.rules else b""

    def announced(self, process: str, rule: bytes) -> VerdictRules:
        """Adds a process's announcement. Returns the same object if nothing changes."""
        before = self.processes.get(process)
        if before == rule:
            return self
        rules, brought, processes = self.rules, self.brought, self.processes
        if rule not in rules or (before == self.newest and before is not None):
            rules, brought = (*(each for each in rules if each != rule), rule)[-RULES_MAX:], process
        if process:
            others = [(name, its) for name, its in processes.items() if name != process]
            processes = dict([*others, (process, rule)][-PROCESSES_MAX:])
        elif rules is self.rules:
            return self
        return VerdictRules(rules, brought, processes)
