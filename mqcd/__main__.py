"""`python -m mqcd`, the installed command `mqcd`, and the file that spark-submit is given."""

import sys

if not __package__ and sys.path:
    # Run as a file its directory is looked in first, and our `queue` would be taken for Python's own.
    del sys.path[0]

from mqcd.sendmail.main import called
from mqcd.sendmail.main import run as sendmail


def main() -> None:
    """Run the command line and leave with its exit code."""
    # Programs start sendmail for each message: it does not wait for what other commands need.
    words = called(sys.argv[0], sys.argv[1:])
    sys.exit(_command_line() if words is None else sendmail(words, _command_line))


def _command_line(arguments: list[str] | None = None) -> int:
    from mqcd.cli.main import main as command_line

    return command_line(arguments)


if __name__ == "__main__":
    main()
