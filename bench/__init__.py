"""What the whole of Photon does, beside other systems on the same sets: ``make bench``, ``make bench-full``."""
