"""Runs computations on a Spark cluster: the same topology and classes, through ``transformWithState``.

There is one query. Its source (``source``) reads published records and gives each one to the computations that read
its stream, under their keys. Each computation is an operator (``operator``); operators are chained. Productions for
published streams are staged with each batch and published once Spark has committed it (``publishing``).

A row is a message to a computation and key: ``to`` is the computation's number in the topology's order, PUBLISHED
for published streams, MARKER, FAULT or ASIDE. Rows for later computations pass through the operators before them.

**Watermarks.** An offset carries the watermark of the records read up to it, and the previous one, so a repeated
batch has the same two. In each batch an operator runs the records at the previous watermark; then the watermark
moves, and timers up to it fire, as the engine does for one input after another. Spark's own watermark is the same
number, carried as a column (``spark.stream_watermarks``); it only wakes keys whose timers are due. Everything else
comes in a marker row for each partition, whose key sorts first there, as Spark sorts the rows of a partition by key.
Spark's no-data batches are disabled: the source makes a batch whenever the watermark has moved.

Records that an operator has set aside may still lead to records of any time. So it sends each change of their number
to every partition of the later operators, next to the marker. In the same batch, later operators count them as
waiting, and with ``exact`` hold back their own watermark.

**Exactly once.** Spark writes the offset of a batch before running it and commits it once state and staged
productions are complete. A batch without a commit is repeated in full, and its staged productions are replaced. Only
committed productions are published, so they match the state even if user code is not deterministic. A published line
is numbered by batch and place, and repeated lines are dropped: see ``publishing``.
"""
