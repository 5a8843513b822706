"""MAIL and RCPT: the DSN parameters, where the next hop takes them."""

from dataclasses import replace

import pytest

from mqcd.deliver.exchange import Result
from tests.unit.deliver.dialogues import mail, offer, ready, results

ASKED = replace(
    mail("a@example.com", "b@example.com", "c@example.com"),
    dsn="RET=HDRS ENVID=QQ314159",
    recipient_dsn=("NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example", "", "NOTIFY=NEVER"),
)


def test_dsn_parameters_are_passed_on_where_they_are_taken() -> None:
    dialogue = ready(offer("PIPELINING", "SIZE", "DSN"))
    dialogue.begin(ASKED)
    assert dialogue.take() == (
        b"MAIL FROM:<from@example.org> SIZE=10 RET=HDRS ENVID=QQ314159\r\n"
        b"RCPT TO:<a@example.com> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example\r\n"
        b"RCPT TO:<b@example.com>\r\n"
        b"RCPT TO:<c@example.com> NOTIFY=NEVER\r\n"
        b"DATA\r\n"
    )


def test_dsn_parameters_are_kept_where_they_are_not_taken() -> None:
    dialogue = ready(offer("PIPELINING"))
    dialogue.begin(ASKED)
    sent = dialogue.take()
    assert not [word for word in (b"RET", b"ENVID", b"NOTIFY", b"ORCPT") if word in sent]


@pytest.mark.parametrize("words", ["RET=FULL\r\nRSET", "RET=FULL  X", " RET", "ENVID=ä"])
def test_parameters_cannot_bring_in_commands(words: str) -> None:
    dialogue = ready(offer("PIPELINING", "DSN"))
    dialogue.begin(replace(mail(), dsn=words))
    assert dialogue.take() == b""
    assert results(dialogue) == [Result.BOUNCED]
    dialogue.begin(replace(mail(), recipient_dsn=(words,)))
    assert dialogue.take() == b""
