"""Computations on a Spark cluster: the same topology and classes through ``transformWithState``.

One query. Its source (``source``) reads what is published and gives each record to the computations that read its
stream, under their keys; each computation is an operator (``operator``), one behind the other; what they produce for
published streams is staged with each batch and published once Spark has committed it (``publishing``).

A row is a message to one computation and key: ``to`` is the computation's number in the topology's order, PUBLISHED
for what is published, MARKER or FAULT. Rows for computations further on pass through the operators before them.

**Watermarks.** An offset carries the watermark of what was read up to it, and the one *before*; so a repeated batch
has the same. In each batch an operator runs the records at the watermark before, then it moves, and timers up to it
are called: as the engine does it with one input after the other. Spark's own watermark is the same number, carried as
a column (``spark.stream_watermarks``); it only wakes keys whose timers are due. All else comes by a marker row for
each partition, whose key is the first one there, as Spark sorts the rows of a partition by key. Spark's batches
without data are off: the source makes a batch whenever the watermark has moved.

**Exactly once.** Spark writes the offset of a batch before it and commits it after state and staged productions are
whole; a batch that was not committed is done again, state and productions alike, and its staged productions are
replaced. Only what a commit names is published, so it is what goes with the state, whatever user code does by chance.
A published line has the number of its batch and place, and what comes again is dropped: see ``publishing``.
"""
