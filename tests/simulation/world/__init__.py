"""The simulated world: disks that forget, networks that lose, clocks that jump."""
