"""A recipient that is named to an operator. Pure, and without Spark."""

from __future__ import annotations

from mqcd.core.value import value

TEXT = 500
"""Characters of a reply, an address or a name that are brought to the driver."""


@value
class Named:
    """Such as one that is stuck; what is not known of it is "" or None."""

    id: str
    """SPID/QID."""
    recipient: str
    site: str
    accepted: int | None
    """Ms, like `due`."""
    due: int | None
    attempts: int
    status: str | None
    reply: str
    """The last one."""
