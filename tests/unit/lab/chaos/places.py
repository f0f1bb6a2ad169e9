"""A deployment for tests of plans: five replicas in three regions, pipelines in east and west."""

from photon.lab.chaos.topology import Topology

_REGIONS = ("east", "east", "west", "west", "central")
REPLICAS = {f"registry r{number}": region for number, region in enumerate(_REGIONS, 1)}
PIPELINES = [f"{noun} {name}" for name in ("east", "west") for noun in ("eventstore", "verifier", "dispatcher")]
JOINERS = {"joiner east-1": "east", "joiner west-1": "west"}
PROCESSES = REPLICAS | {name: name.split()[1] for name in PIPELINES} | JOINERS
TOPOLOGY = Topology(REPLICAS, {"east": "east", "west": "west"}, PROCESSES, ("central", "east", "west"))
