"""Options of every peer's script. Standard library only: it runs in each peer's environment."""

import argparse
from pathlib import Path


def parse() -> argparse.Namespace:
    """Parses the options; paths become ``Path``."""
    parser = argparse.ArgumentParser()
    for name in ("queries", "clicks", "output", "state"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    given.state.mkdir(parents=True, exist_ok=True)
    return given
