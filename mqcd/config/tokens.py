"""The tokens that a value may hold: directories and the machine's name.

Tokens of other makers stay as they are: %DT%, %Y%, %M% and %D% in paths of logs, %H% and %PRODNAME% in
texts that a peer reads. `unknown` finds tokens that no part replaces, which is an error in a path.
"""

import pathlib
import re

from mqcd.core.value import value

_TOKEN = re.compile(r"%([A-Z]+)%")
_KEPT = frozenset({"DT", "Y", "M", "D"})


@value
class Tokens:
    """What the tokens stand for. Paths are absolute."""

    conf: pathlib.Path
    """%DIRCONF%: the directory of the configuration file; relative paths count from it."""
    var: pathlib.Path
    """%DIRVAR%; %DIRLOG% and %DIRTMP% are `logs` and `tmp` in it."""
    hostname: str
    """%SYSNAME%."""

    @property
    def values(self) -> dict[str, str]:
        """Each token, without its percent signs, and what it stands for."""
        return {
            "DIRVAR": str(self.var),
            "DIRCONF": str(self.conf),
            "DIRLOG": str(self.var / "logs"),
            "DIRTMP": str(self.var / "tmp"),
            "SYSNAME": self.hostname,
        }

    def expand(self, text: str) -> str:
        """A text with its tokens replaced; those of other makers stay."""
        values = self.values
        return _TOKEN.sub(lambda match: values.get(match[1], match[0]), text)

    def absolute(self, path: pathlib.Path) -> pathlib.Path:
        """A path as written in the file, made absolute."""
        return self.conf / path

    def unknown(self, text: str) -> str | None:
        """The first token in a path that no part replaces, with its percent signs; None if there is none."""
        for match in _TOKEN.finditer(text):
            if match[1] not in self.values and match[1] not in _KEPT:
                return match[0]
        return None
