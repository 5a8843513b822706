"""Errors and warnings about a file, each with its place; and the exception that carries all errors."""

import dataclasses

from mqcd.core.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Remark:
    """One thing that the writer of a file should know: an error or a warning, by the list it is in."""

    file: str
    line: int
    path: str
    """Element path below the root, such as `mta/submit/listeners/listener[2]@port`; "" = the root."""
    text: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{where}{self.path}: {self.text}" if self.path else f"{where}{self.text}"


MOST = 100
"""Errors of a file that are reported; as many warnings. More are of no use, and finding them all could take
minutes."""


class BadConfiguration(ConfigError):
    """A file does not load. Its text has one line for each error, in the order of the file."""

    def __init__(self, remarks: tuple[Remark, ...]) -> None:
        self.remarks = tuple(sorted(remarks))
        lines = [*map(str, self.remarks)]
        if len(lines) >= MOST:
            lines.append(f"reading ended after {MOST} errors; there may be more")
        super().__init__("\n".join(lines))
