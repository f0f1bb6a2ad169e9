"""Fault injection as a product: faults are applied to a running deployment by a plan and healed; then everything is
verified."""
