"""The registry without network, clock or disk: commands, id tables, state machines, snapshots, rules."""
