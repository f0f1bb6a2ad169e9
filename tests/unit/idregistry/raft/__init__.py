"""The Raft driver."""
