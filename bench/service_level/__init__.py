"""What the service as a whole does over days and under too much load: ``python -m bench.service_level``."""
