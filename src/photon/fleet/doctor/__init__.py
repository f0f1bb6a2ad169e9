"""Whether a deployment can run, and runs, as it should: facts gathered at the edge, findings made of them."""
