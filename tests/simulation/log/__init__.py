"""The published log, under kills and power cuts."""
