"""`python -m mqcd` and the installed command `mqcd`."""

import sys

from mqcd.cli.main import main as command_line


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(command_line())


if __name__ == "__main__":
    main()
