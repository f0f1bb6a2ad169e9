"""An operator's view of slots: the registry's entries, the files on this machine, and retiring."""
