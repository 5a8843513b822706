"""What of a message an idempotency key covers."""

from __future__ import annotations

import dataclasses
from typing import Any

from mqcd.core.model import Body
from mqcd.submit.esmtp.parameters import MailParameters
from mqcd.submit.session import keying
from mqcd.submit.session.dialogue import Dialogue
from tests.unit.submit.support import House, server

_OTHER: dict[type, Any] = {Body: Body.EIGHT, bool: True, int: 60_000, str: "RET=HDRS"}


def digest(parameters: MailParameters) -> bytes:
    rules = House(server(submission=True)).door.intake.book.common
    dialogue = Dialogue(rules, "test", "192.0.2.1", lambda _: None)
    for line in (b"EHLO client", b"MAIL FROM:<from@example.net>", b"RCPT TO:<to@example.com>"):
        assert dialogue.command(line)[:1] == b"2"
    dialogue.begun.parameters = parameters
    key, _ = keying.of_whole(dialogue, b"Subject: a\r\n\r\n")
    assert key is not None
    return key.digest


def test_each_parameter_of_mail_makes_another_message_but_its_size() -> None:
    plain = MailParameters(key="k")
    for field in dataclasses.fields(MailParameters):
        changed = dataclasses.replace(plain, **{field.name: _OTHER[type(getattr(plain, field.name))]})
        assert (digest(changed) == digest(plain)) == (field.name in ("size", "key")), field.name
