"""Rows with conditional changes, in memory, SQLite or HBase."""
