"""A slot: a joiner's locked directory with its redo log and its output files."""
