"""OpenTelemetry: spans of sampled batches, metrics and log lines, sent by OTLP where ``[telemetry]`` says so.

Rooms see ``spans`` alone, which imports no library; ``otlp`` and ``points`` need the extra.
"""
