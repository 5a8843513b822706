"""A submission's idempotency key: whose it is, and of which message. See `core.queueing.idempotency`.

It stands in the header or in MAIL. Where it stands in both it must be the same.

The digest covers what the client has sent, before a filter or this server changes it.

Settings read: submission.
"""

from __future__ import annotations

from functools import partial

from mqcd.core.clients import client_network
from mqcd.core.model import Key
from mqcd.core.queueing.idempotency import key_of, read_on
from mqcd.core.smtp.reply import Reply
from mqcd.submit.esmtp.parameters import KEY
from mqcd.submit.esmtp.refusal import DoorRefused, Reason
from mqcd.submit.message.keys import take_key
from mqcd.submit.message.zoning import MAX_SECTION
from mqcd.submit.session.dialogue import Dialogue
from mqcd.submit.session.stream import Stream

_TWO_KEYS = Reply(code=554, status="5.6.0", text=f"X-mqcd-Key and {KEY} of MAIL are not the same key")


def of_whole(dialogue: Dialogue, content: bytes) -> tuple[Key | None, bytes]:
    """The key of a message that is whole, and the message without it. Raises DoorRefused."""
    if not dialogue.rules.settings.submission:
        return None, content
    transaction = dialogue.begun
    given = transaction.parameters
    text, rest = take_key(content)
    if given.key:
        if text and given.key != text:
            raise DoorRefused(Reason.CONTENT, _TWO_KEYS)
        text = given.key
    if not text:
        return None, content
    # As they were given with MAIL: a time that is counted from now on differs at each use.
    others = f"{given.smtputf8} {given.holdfor} {given.holduntil} {given.priority}"
    parameters = (given.body, given.dsn, others, *transaction.recipient_dsn)
    key = key_of(_owner(dialogue), text, transaction.sender, transaction.recipients, content, parameters)
    return key, rest


async def of_stream(dialogue: Dialogue, stream: Stream) -> Key | None:
    """The same for a large one, which goes on without its key."""
    if not dialogue.rules.settings.submission:
        return None
    key, rest = of_whole(dialogue, await stream.head(MAX_SECTION))
    if key is not None:
        stream.replace(rest, partial(read_on, key))
    return key


def _owner(dialogue: Dialogue) -> str:
    """Nobody else can use the keys of a user, or of a client that has not logged in."""
    if dialogue.user:
        return f"user:{dialogue.user}"
    if dialogue.caller.user:
        return f"local:{dialogue.caller.user}"
    return f"net:{client_network(dialogue.client)}"
