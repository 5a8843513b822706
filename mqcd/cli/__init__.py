"""The command line: `mqcd COMMAND`. It parses, hands over, and turns errors into exit codes.

Exit code 0: done; 1: refused or found wrong; 2: the command line itself is wrong. With --json standard
output has one object a line and nothing else. Modules that a command needs are imported when it runs,
so that `mqcd queue ls` starts fast.
"""

from mqcd.cli.main import main

__all__ = ["main"]
