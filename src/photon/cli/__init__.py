"""The command line: five commands that look, ``serve``, and NOUN VERB."""
