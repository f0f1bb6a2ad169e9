"""Faults as a product: done to a running deployment by a plan, healed, and everything verified afterwards."""
