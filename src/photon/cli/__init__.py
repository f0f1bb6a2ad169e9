"""The command line, as NOUN VERB."""
