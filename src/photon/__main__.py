"""``python -m photon`` is the same command as ``photon``."""

from photon.cli.main import main

if __name__ == "__main__":
    main()
