"""``photon join``: runs the whole pipeline for two directories on one machine."""
