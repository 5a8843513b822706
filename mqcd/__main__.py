"""`python -m mqcd`, the installed command `mqcd`, and the file that spark-submit is given."""

import sys

if not __package__ and sys.path:
    # Run as a file its directory is looked in first, and our `queue` would be taken for Python's own.
    del sys.path[0]

from mqcd.cli.main import main as command_line


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(command_line())


if __name__ == "__main__":
    main()
