"""What a process reports: numbers in Prometheus text format, and details for the status page.

Everything is read from counters that are there anyway, at the moment of the question; nothing is done for an event.
"""
