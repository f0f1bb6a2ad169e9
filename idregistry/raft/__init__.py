"""The Raft driver: hosts any state machine over bytes on pysyncobj, without losing acknowledged writes."""
