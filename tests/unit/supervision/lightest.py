"""The lightest processes that there are: proxies without routes."""

MODULES = (
    "photon.cli.wan",
    "photon.config.runtime",
    "photon.fleet.access",
    "photon.lab.wan.service",
    "photon.supervision.routes",
    "grpc._channel",
    "grpc.experimental",
)
"""What one imports: the copy of a zygote that has it costs a tenth of a fresh one."""
