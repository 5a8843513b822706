"""A session as operators see it. Pure."""

from __future__ import annotations

from mqcd.core.value import value
from mqcd.submit.session.dialogue import Dialogue


@value
class SessionView:
    """At one moment."""

    session: str
    """Its name in the log."""
    state: str
    """What it has come to, by the names of `submit.esmtp.states`, small."""
    since_ms: int
    """How long it lasts."""
    tls: str
    """TLS version; "" = none."""
    messages: int
    """Received so far."""
    listener: str
    client: str
    """IP address."""
    user: str
    """Authenticated, or the local user; "" = none."""


def view_of(dialogue: Dialogue, since_ms: int) -> SessionView:
    """Of the session that has this dialogue."""
    return SessionView(
        session=dialogue.session,
        state=dialogue.state.name.lower(),
        since_ms=since_ms,
        tls=dialogue.channel.tls,
        messages=dialogue.messages,
        listener=dialogue.listener,
        client=dialogue.client,
        user=dialogue.user or dialogue.caller.user,
    )
