"""The command line: ``TASKS`` in ``main.py`` lists its commands by task."""
