"""The tables of this room in the dispatcher's database."""

from __future__ import annotations

TABLES = """
CREATE TABLE IF NOT EXISTS covered (identity TEXT NOT NULL, chunk INTEGER NOT NULL, oldest_ns INTEGER NOT NULL,
  newest_ns INTEGER NOT NULL, PRIMARY KEY (identity, chunk)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS replays (id INTEGER PRIMARY KEY AUTOINCREMENT, from_ns INTEGER NOT NULL,
  to_ns INTEGER NOT NULL, pattern TEXT NOT NULL, asked_ns INTEGER NOT NULL, status INTEGER NOT NULL,
  ended_ns INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS replay_logs (replay INTEGER NOT NULL, identity TEXT NOT NULL, path TEXT NOT NULL,
  begin INTEGER NOT NULL, at INTEGER NOT NULL, stop INTEGER NOT NULL, status INTEGER NOT NULL,
  events INTEGER NOT NULL, known INTEGER NOT NULL, PRIMARY KEY (replay, identity)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reopened (digest BLOB NOT NULL, generation INTEGER NOT NULL,
  event_time_ns INTEGER NOT NULL, seen_ns INTEGER NOT NULL, PRIMARY KEY (digest, generation)) WITHOUT ROWID;
"""
"""``covered``: see ``coverage``; ``replays``, ``replay_logs``: see ``requests``; ``reopened``: see ``reopened``."""
