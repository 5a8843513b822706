"""What a login is made of: values that settings hold and nobody shows."""

import dataclasses
import enum


class Mechanism(enum.Enum):
    """How to log in to a next hop."""

    PLAIN = "plain"
    LOGIN = "login"
    CRAM_MD5 = "cram_md5"
    EXTERNAL = "external"


@dataclasses.dataclass(frozen=True, slots=True)
class Secret:
    """A text that is shown to nobody: not in a log, a listing, or a shown configuration."""

    text: str = dataclasses.field(default="", repr=False)
    from_file: bool = False
    """It stands in a file of its own, not in the configuration."""
