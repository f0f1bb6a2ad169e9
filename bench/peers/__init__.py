"""Other systems on the same job, each a script that its own interpreter runs; nothing here imports Photon."""
