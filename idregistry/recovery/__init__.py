"""What the protocol asks of the registry beside inserts: witness, watermark, scans, reopening, fences."""
