"""The lightest possible processes: proxies without routes."""

# Its imports: the copy of a zygote that has them costs a tenth of a fresh one.
MODULES = (
    "photon.cli.wan",
    "photon.config.runtime",
    "photon.fleet.access",
    "photon.lab.wan.service",
    "photon.supervision.routes",
    "grpc._channel",
    "grpc.experimental",
)
