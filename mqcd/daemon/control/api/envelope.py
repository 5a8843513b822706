"""What is given with a message that is to enter the queue. Pure."""

from __future__ import annotations

from mqcd.daemon.control.api.fields import Field, Kind

FIELDS = (
    Field(name="from", gloss='The sender; "" is the null one.', required=True),
    Field(name="to", kind=Kind.TEXTS, gloss="The recipients.", required=True),
    Field(name="content", gloss="The message: header, empty line, body.", required=True),
    Field(name="key", gloss="Idempotency key."),
    Field(name="hold", gloss="A name under which the message is held; `hold` in conditions."),
)
HEADERS = (
    Field(name="X-Mqcd-From", gloss="The sender, where the body is the message itself."),
    Field(name="X-Mqcd-To", gloss="The recipients, with commas between."),
    Field(name="X-Mqcd-Key", gloss="Idempotency key."),
    Field(name="X-Mqcd-Hold", gloss="A name under which the message is held; `hold` in conditions."),
)
