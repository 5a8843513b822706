"""Content by BDAT (RFC 3030), and by DATA to LMTP servers (RFC 2033): who gets which reply."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.model import Phase
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options, Result
from mqcd.deliver.smtp.states import WAITING, State
from tests.unit.deliver.smtp_clients import mail, offer, ready, results

CHUNKED = offer("PIPELINING", "CHUNKING", "8BITMIME")
LMTP = Options(hello="me.example", lmtp=True)


def chunked(*recipients: str, ehlo: bytes = CHUNKED, maxpipeline: int = 25) -> SmtpClient:
    """A transaction whose RCPTs have all been accepted."""
    client = ready(ehlo, Options(hello="me.example", maxpipeline=maxpipeline))
    client.begin(mail(*recipients))
    client.take()
    for _ in range(max(len(recipients), 1) + 1):
        client.receive(b"250 ok\r\n")
        client.take()
    assert client.state is State.CONTENT
    return client


def test_bdat_is_used_where_offered_with_content_as_it_is() -> None:
    client = ready(CHUNKED)
    client.begin(mail())
    assert client.take() == b"MAIL FROM:<from@example.org>\r\nRCPT TO:<to@example.com>\r\n"
    assert client.receive(b"250 ok\r\n") in WAITING
    assert client.receive(b"250 ok\r\n") is State.CONTENT
    assert client.content(b".x", True) == b"BDAT 2 LAST\r\n.x"
    assert client.dot_sent
    assert client.receive(b"250 2.0.0 taken\r\n") is State.READY
    assert results(client) == [Result.DELIVERED]


def test_chunks_precede_their_replies_within_the_window() -> None:
    client = chunked(maxpipeline=3)
    for _ in range(2):
        client.content(b"abc", False)
        assert client.state is State.CONTENT
    client.content(b"abc", False)
    assert client.state in WAITING
    assert client.receive(b"250 3 octets\r\n") is State.CONTENT
    assert not client.dot_sent
    assert client.content(b"", True) == b"BDAT 0 LAST\r\n"
    assert client.receive(b"250 3 octets\r\n250 3 octets\r\n") in WAITING
    assert not client.decided
    assert client.receive(b"250 9 octets, taken\r\n") is State.READY
    assert results(client) == [Result.DELIVERED]


def test_without_pipelining_each_chunk_waits() -> None:
    client = chunked(ehlo=offer("CHUNKING"))
    client.content(b"abc", False)
    assert client.state in WAITING
    assert client.receive(b"250 ok\r\n") is State.CONTENT


@pytest.mark.parametrize(
    ("reply", "result"),
    [(b"552 5.3.4 large", Result.BOUNCED), (b"452 4.3.1 full", Result.DEFERRED), (b"503 no", Result.BOUNCED)],
)
def test_a_refused_chunk_is_the_verdict_and_no_more_is_sent(reply: bytes, result: Result) -> None:
    client = chunked("a@example.com", "b@example.com", maxpipeline=2)
    client.content(b"abc", False)
    client.content(b"abc", False)
    assert client.receive(reply + b"\r\n") in WAITING
    assert client.receive(b"503 5.5.1 no\r\n") is State.READY
    assert results(client) == [result] * 2
    assert {outcome.phase for outcome in client.outcomes} == {Phase.DATA}
    client.begin(mail())
    assert client.take().startswith(b"RSET\r\n")


def test_a_last_chunk_taken_after_a_refused_one_delivers_nobody() -> None:
    client = chunked()
    client.content(b"abc", False)
    client.content(b"abc", True)
    client.receive(b"452 4.3.1 full\r\n250 taken\r\n")
    assert results(client) == [Result.DEFERRED]


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(1, 4))
def test_what_bdat_announces_is_what_follows(chunks: list[bytes], window: int) -> None:
    client = chunked(maxpipeline=window)
    wire = b""
    for chunk in chunks:
        wire += client.content(chunk, False)
        if client.state in WAITING:
            client.receive(b"250 ok\r\n")
    wire += client.content(b"end", True)
    content = b""
    while wire:
        line, _, wire = wire.partition(b"\r\n")
        count = int(line.split()[1])
        content, wire = content + wire[:count], wire[count:]
    assert content == b"".join(chunks) + b"end"


# ---------------------------------------------------------------- LMTP


def to_the_end(*rcpt: bytes, ehlo: bytes = offer("PIPELINING")) -> SmtpClient:
    client = ready(ehlo, LMTP)
    client.begin(mail(*(f"r{number}@example.com" for number in range(len(rcpt)))))
    client.take()
    client.receive(b"250 ok\r\n" + b"\r\n".join(rcpt) + b"\r\n")
    if client.state in WAITING:
        client.receive(b"354 go\r\n")
    client.content(b"x\r\n", True)
    return client


@pytest.mark.parametrize("ehlo", [offer("PIPELINING"), CHUNKED], ids=["DATA", "BDAT"])
def test_lmtp_replies_for_each_accepted_recipient_in_order(ehlo: bytes) -> None:
    client = to_the_end(b"250 ok", b"550 5.1.1 no", b"250 ok", b"250 ok", ehlo=ehlo)
    assert client.receive(b"250 2.1.5 one\r\n") in WAITING
    assert not client.decided
    client.receive(b"452 4.2.2 full\r\n")
    assert client.receive(b"550 5.2.1 off\r\n") is State.READY
    assert results(client) == [Result.DELIVERED, Result.BOUNCED, Result.DEFERRED, Result.BOUNCED]
    assert [outcome.reply.status for outcome in client.outcomes] == ["2.1.5", "5.1.1", "4.2.2", "5.2.1"]


def test_one_reply_too_many_ends_the_session() -> None:
    client = to_the_end(b"250 ok")
    assert client.receive(b"250 taken\r\n550 no\r\n") is State.ENDED
    assert results(client) == [Result.DELIVERED]


@pytest.mark.parametrize("ehlo", [offer("PIPELINING"), CHUNKED], ids=["DATA", "BDAT"])
def test_quit_follows_the_end_and_is_answered_last(ehlo: bytes) -> None:
    client = ready(ehlo, LMTP)
    client.begin(replace(mail("a@example.com", "b@example.com"), quit_after=True))
    client.take()
    client.receive(b"250 ok\r\n" * 3)
    if client.state in WAITING:
        client.receive(b"354 go\r\n")
    assert client.content(b"x\r\n", True).endswith(b"QUIT\r\n")
    decided = []
    for reply in (b"250 one\r\n", b"450 4.2.2 two\r\n"):
        client.receive(reply)
        decided.append(client.decided)
    assert decided == [False, True]
    assert client.receive(b"221 bye\r\n") is State.ENDED
    assert results(client) == [Result.DELIVERED, Result.DEFERRED]


def test_lmtp_wants_no_content_for_nobody() -> None:
    client = ready(offer("PIPELINING"), LMTP)
    client.begin(mail())
    client.take()
    assert client.receive(b"250 ok\r\n550 5.1.1 no\r\n354 go\r\n") is State.ENDED
    assert client.take() == b""
    assert results(client) == [Result.BOUNCED]


def test_lmtp_is_never_greeted_as_smtp() -> None:
    client = SmtpClient(Options(hello="me.example", lmtp=True, fallback_helo=True, say_helo=True))
    client.receive(b"220 ready\r\n")
    assert client.take() == b"LHLO me.example\r\n"
    assert client.receive(b"500 what\r\n") is State.ENDED


_SAID = st.one_of(
    st.sampled_from(
        [b"250 ok\r\n", b"354 go\r\n", b"550 no\r\n", b"450 no\r\n", b"334 YQ==\r\n", b"235 in\r\n"]
    ),
    st.binary(max_size=20),
)


@given(st.booleans(), st.booleans(), st.lists(_SAID, max_size=12))
def test_nobody_is_delivered_before_the_end_of_the_content(lmtp: bool, bdat: bool, said: list[bytes]) -> None:
    client = ready(CHUNKED if bdat else offer("PIPELINING"), Options(hello="me.example", lmtp=lmtp))
    client.begin(mail("a@example.com", "b@example.com"))
    for octets in said:
        if client.state is State.CONTENT:
            client.content(b"part", False)
        client.receive(octets)
    client.lost("gone")
    assert len(client.outcomes) == 2
    assert Result.DELIVERED not in results(client)
