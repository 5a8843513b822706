"""MAIL and RCPT: the DSN parameters, where the next hop takes them."""

from dataclasses import replace

import pytest

from mqcd.deliver.smtp import commands
from mqcd.deliver.smtp.exchange import Result
from tests.unit.deliver.smtp_clients import mail, offer, ready, results

ASKED = replace(
    mail("a@example.com", "b@example.com", "c@example.com"),
    dsn="RET=HDRS ENVID=QQ314159",
    recipient_dsn=("NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example", "", "NOTIFY=NEVER"),
)


def test_dsn_parameters_are_passed_on_where_they_are_taken() -> None:
    client = ready(offer("PIPELINING", "SIZE", "DSN"))
    client.begin(ASKED)
    assert client.take() == (
        b"MAIL FROM:<from@example.org> SIZE=10 RET=HDRS ENVID=QQ314159\r\n"
        b"RCPT TO:<a@example.com> NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;a@other.example\r\n"
        b"RCPT TO:<b@example.com>\r\n"
        b"RCPT TO:<c@example.com> NOTIFY=NEVER\r\n"
        b"DATA\r\n"
    )


def test_dsn_parameters_are_kept_where_they_are_not_taken() -> None:
    client = ready(offer("PIPELINING"))
    client.begin(ASKED)
    sent = client.take()
    assert not [word for word in (b"RET", b"ENVID", b"NOTIFY", b"ORCPT") if word in sent]


@pytest.mark.parametrize("words", ["RET=FULL\r\nRSET", "RET=FULL  X", " RET", "ENVID=ä"])
def test_parameters_cannot_bring_in_commands(words: str) -> None:
    client = ready(offer("PIPELINING", "DSN"))
    client.begin(replace(mail(), dsn=words))
    assert client.take() == b""
    assert results(client) == [Result.BOUNCED]
    client.begin(replace(mail(), recipient_dsn=(words,)))
    assert client.take() == b""


ODD = (
    "rtl\u202e@example.com",
    "soft\xad@example.com",
    "c1\x85@example.com",
    "half\ud800@example.com",
    "nul\0@x.example",
)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_recipient_takes_no_other_along(odd: str) -> None:
    client = ready(offer("PIPELINING", "SMTPUTF8"))
    client.begin(mail("a@example.com", odd, "b@example.com", smtputf8=True))
    assert client.take().count(b"RCPT TO") == 2
    client.receive(b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n")
    client.content(b"x\r\n", last=True)
    client.receive(b"250 taken\r\n")
    assert results(client) == [Result.DELIVERED, Result.BOUNCED, Result.DELIVERED]
    assert client.outcomes[1].reply.status == "5.1.3"


def test_joiners_of_scripts_are_letters() -> None:
    client = ready(offer("PIPELINING", "SMTPUTF8"))
    client.begin(mail("\u0646\u0627\u0645\u0647\u200c\u0627\u06cc@example.com", smtputf8=True))
    assert "\u200c".encode() in client.take()


def test_only_recipients_that_need_utf_8_miss_it() -> None:
    client = ready(offer("PIPELINING"))
    client.begin(mail("a@example.com", "j\xf6rg@example.com"))
    assert b"RCPT TO:<a@example.com>\r\nDATA" in client.take()
    client.receive(b"250 ok\r\n250 ok\r\n354 go\r\n")
    client.content(b"x\r\n", last=True)
    client.receive(b"250 taken\r\n")
    assert results(client) == [Result.DELIVERED, Result.BOUNCED]
    assert client.outcomes[1].reply.status == "5.6.7"


def test_odd_parameters_concern_their_recipient() -> None:
    client = ready(offer("PIPELINING", "DSN"))
    client.begin(replace(mail("a@example.com", "b@example.com"), recipient_dsn=("NOTIFY=NEVER", "X\r\nRSET")))
    sent = client.take()
    assert b"<a@example.com> NOTIFY=NEVER" in sent
    assert b"RSET" not in sent
    assert b"<b@example.com>" not in sent


def test_an_odd_sender_is_refused_whole() -> None:
    client = ready(offer("PIPELINING", "SMTPUTF8"))
    client.begin(replace(mail("a@example.com", smtputf8=True), sender="x\u202e@example.org"))
    assert client.take() == b""
    assert client.outcomes[0].reply.status == "5.1.7"


@pytest.mark.parametrize(
    ("offered", "parameter"), [({"MT-PRIORITY": ""}, b" MT-PRIORITY=-4"), ({"DSN": ""}, b"")]
)
def test_the_priority_goes_where_it_is_offered(offered: dict[str, str], parameter: bytes) -> None:
    line = commands.mail(replace(mail(), priority=-4), offered)
    assert line == b"MAIL FROM:<from@example.org>" + parameter + b"\r\n"
