"""The command line: three commands that look, ``serve``, and NOUN VERB."""
