"""Foreign records as columns; they are made where Spark's jobs make them too (``joiner.foreign_columns``)."""

from __future__ import annotations

from photon.joiner.foreign_columns import Columns, Unreadable, columns_of, records_of

__all__ = ["Columns", "Unreadable", "columns_of", "records_of"]
