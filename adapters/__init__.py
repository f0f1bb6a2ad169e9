"""How Photon reads both logs and what a joined record is: the adapter contract, formats, and the log follower."""
