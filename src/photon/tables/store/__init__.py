"""Stores of rows: memory, SQLite."""
