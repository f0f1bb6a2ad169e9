"""A deployment for tests of plans: five replicas in three regions, pipelines in east and west."""

from photon.lab.chaos.topology import Topology

REPLICAS = {
    "registry r1": "east",
    "registry r2": "east",
    "registry r3": "west",
    "registry r4": "west",
    "registry r5": "central",
}
PIPELINES = [f"{noun} {name}" for name in ("east", "west") for noun in ("eventstore", "verifier", "dispatcher")]
JOINERS = {"joiner east-1": "east", "joiner west-1": "west"}
PROCESSES = REPLICAS | {name: name.split()[1] for name in PIPELINES} | JOINERS
TOPOLOGY = Topology(REPLICAS, {"east": "east", "west": "west"}, PROCESSES, ("central", "east", "west"))
