"""Reading both logs and making joined records: the adapter contract, formats, and the log follower."""
