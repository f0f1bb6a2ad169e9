"""OpenTelemetry: spans of sampled batches, metrics and log lines, sent by OTLP if ``[telemetry]`` is configured.

Rooms see only ``spans``, which imports no library; ``otlp`` and ``points`` need the extra.
"""
