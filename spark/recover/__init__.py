"""Repairs lost events: gives them back to the dispatchers if the registry's entry still equals the exported one."""
