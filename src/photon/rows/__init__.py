"""Rows changed under a condition, in memory, SQLite or HBase."""
