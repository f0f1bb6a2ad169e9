"""The built-in record formats: JSON Lines, CSV/TSV, regular expressions."""
