"""Checks if a deployment can run and runs well: facts are gathered at the edge, findings are derived from them."""
