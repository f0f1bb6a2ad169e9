"""What a registry is, without a network, a clock or a disk: commands, id tables, state machines, snapshots, rules."""
