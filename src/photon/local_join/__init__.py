"""``photon join``: the whole pipeline of two directories on one machine."""
