"""The SMTP client's table: what is sent, and what becomes of each recipient."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options, Outcome, Result, Transaction
from mqcd.deliver.smtp.states import WAITING, State
from tests.unit.deliver.smtp_clients import HELLO, PLAIN, mail, ready, results


def test_pipelining_sends_the_whole_envelope_at_once() -> None:
    client = ready()
    client.begin(mail("a@example.com", "b@example.com"))
    assert client.take() == (
        b"MAIL FROM:<from@example.org> SIZE=10\r\n"
        b"RCPT TO:<a@example.com>\r\nRCPT TO:<b@example.com>\r\nDATA\r\n"
    )
    assert client.receive(b"250 ok\r\n250 ok\r\n250 ok\r\n354 go\r\n") is State.CONTENT
    assert client.content(b"x\r\n", True) == b"x\r\n.\r\n"
    assert client.receive(b"250 2.6.0 queued as 1\r\n") is State.READY
    assert results(client) == [Result.DELIVERED] * 2
    assert client.outcomes[0].reply.status == "2.6.0"


def test_without_pipelining_commands_wait_for_their_replies() -> None:
    client = ready(PLAIN)
    client.begin(mail())
    sent = [client.take()]
    for reply in (b"250 ok\r\n", b"250 ok\r\n"):
        client.receive(reply)
        sent.append(client.take())
    assert sent == [b"MAIL FROM:<from@example.org> SIZE=10\r\n", b"RCPT TO:<to@example.com>\r\n", b"DATA\r\n"]


def test_maxpipeline_bounds_what_is_sent_ahead() -> None:
    client = ready(options=Options(hello="me.example", maxpipeline=2))
    client.begin(mail("a@example.com", "b@example.com", "c@example.com"))
    assert client.take().count(b"\r\n") == 2
    client.receive(b"250 ok\r\n")
    assert client.take() == b"RCPT TO:<b@example.com>\r\n"


def test_pipelined_data_after_refusals_ends_with_a_lone_dot() -> None:
    client = ready()
    client.begin(mail())
    client.take()
    assert client.receive(b"250 ok\r\n450 4.2.1 later\r\n354 go\r\n") in WAITING
    assert client.take() == b".\r\n"
    assert client.receive(b"250 taken\r\n") is State.READY
    assert results(client) == [Result.DEFERRED]


def test_mail_refused_is_the_verdict_of_all_whatever_follows() -> None:
    client = ready()
    client.begin(mail("a@example.com", "b@example.com"))
    client.receive(b"451 4.7.1 wait\r\n250 ok\r\n550 no\r\n503 bad sequence\r\n")
    assert client.state is State.READY
    assert results(client) == [Result.DEFERRED] * 2
    assert {outcome.reply.status for outcome in client.outcomes} == {"4.7.1"}


def test_552_after_rcpt_means_too_many_and_is_temporary() -> None:
    client = ready()
    client.begin(mail("a@example.com"))
    client.receive(b"250 ok\r\n552 too many\r\n503 no recipients\r\n")
    assert results(client) == [Result.DEFERRED]


@pytest.mark.parametrize(
    ("transaction", "status"),
    [
        (mail(size=1001), "5.3.4"),
        (mail(eight=True), "5.6.3"),
        (mail(smtputf8=True), "5.6.7"),
        (mail("a\r\nDATA@example.com"), "5.1.3"),
    ],
)
def test_what_the_next_hop_cannot_carry_is_bounced_unsent(transaction: Transaction, status: str) -> None:
    client = ready(b"250-mx\r\n250 SIZE 1000\r\n")
    assert client.begin(transaction) is State.READY
    assert client.take() == b""
    [outcome] = client.outcomes
    assert (outcome.result, outcome.reply.status) == (Result.BOUNCED, status)


def test_parameters_are_given_where_offered() -> None:
    client = ready()
    client.begin(mail("jörg@example.com", eight=True, smtputf8=True))
    sent = client.take()
    assert sent.startswith(b"MAIL FROM:<from@example.org> SIZE=10 BODY=8BITMIME SMTPUTF8\r\n")
    assert "jörg".encode() in sent


@pytest.mark.parametrize(
    "said", [b"354 go\r\n", b"hello\r\n", b"250-a\r\n251 b\r\n", b"\x00" * 5000, b"199 x\r\n"]
)
def test_nonsense_after_the_dot_is_never_a_delivery(said: bytes) -> None:
    client = ready()
    client.begin(mail())
    client.receive(b"250 ok\r\n250 ok\r\n354 go\r\n")
    client.content(b"", True)
    assert client.receive(said) is State.ENDED
    [outcome] = client.outcomes
    assert (outcome.result, outcome.reply.status) == (Result.DEFERRED, "4.5.0")
    assert outcome.possibly_delivered


def test_421_ends_the_session_wherever_it_comes() -> None:
    for said in (
        b"421 4.3.2 bye\r\n",
        b"250 ok\r\n421 4.3.2 bye\r\n",
        b"250 ok\r\n250 ok\r\n421 4.3.2 bye\r\n",
    ):
        client = ready()
        client.begin(mail())
        assert client.receive(said) is State.ENDED
        [outcome] = client.outcomes
        assert (outcome.result, outcome.reply.code) == (Result.DEFERRED, 421)
    idle = ready()
    assert idle.receive(b"421 idle\r\n") is State.ENDED


@pytest.mark.parametrize(
    "greeting", [b"554 no\r\n", b"421 busy\r\n", b"450 later\r\n", b"SSH-2.0\r\n", b"354 x\r\n"]
)
def test_a_refused_session_is_temporary(greeting: bytes) -> None:
    client = SmtpClient(Options(hello="me.example"))
    assert client.receive(greeting) is State.ENDED
    assert client.end is not None
    assert 400 <= client.end.code < 500


def test_pipelining_offered_before_tls_is_forgotten() -> None:
    client = SmtpClient(Options(hello="me.example", fallback_helo=True))
    client.receive(HELLO + b"250-mx\r\n250-PIPELINING\r\n250 STARTTLS\r\n220 go\r\n")
    client.tls_started()
    assert client.receive(b"502 no\r\n250 mx\r\n") is State.READY
    assert not client.extensions
    client.take()
    client.begin(mail())
    assert client.take().count(b"\r\n") == 1


def test_clear_text_replies_behind_starttls_end_the_session() -> None:
    client = SmtpClient(Options(hello="me.example"))
    client.receive(HELLO + b"250-mx\r\n250 STARTTLS\r\n")
    assert client.receive(b"220 go\r\n250 injected\r\n") is State.ENDED
    client = SmtpClient(Options(hello="me.example"))
    client.receive(HELLO + b"250-mx\r\n250 STARTTLS\r\n")
    assert client.receive(b"220 go\r\n250 the rest is said in T") is State.ENDED


def test_quit_goes_with_the_dot_and_delays_no_verdict() -> None:
    client = ready()
    client.begin(Transaction(sender="", recipients=("a@example.com",), size=1, quit_after=True))
    client.receive(b"250 ok\r\n250 ok\r\n354 go\r\n")
    assert client.content(b"", True) == b".\r\nQUIT\r\n"
    client.receive(b"250 ok\r\n")
    assert client.decided
    assert client.state in WAITING
    assert client.receive(b"221 bye\r\n") is State.ENDED
    assert results(client) == [Result.DELIVERED]


_REPLY = st.sampled_from(
    [
        b"250 ok\r\n",
        b"354 go\r\n",
        b"450 4.2.1 no\r\n",
        b"550 no\r\n",
        b"421 bye\r\n",
        b"250-a\r\n250 b\r\n",
        b"?\r\n",
    ]
)


def outcomes_of(replies: bytes, step: int) -> tuple[list[Outcome], bytes]:
    client = ready()
    client.begin(mail("a@example.com", "b@example.com"))
    sent = client.take()
    for start in range(0, len(replies), step):
        client.receive(replies[start : start + step])
        sent += client.take()
    client.lost("gone")
    return client.outcomes, sent


@given(st.lists(_REPLY, max_size=4).map(b"".join))
def test_byte_at_a_time_equals_whole(replies: bytes) -> None:
    assert outcomes_of(replies, 1)[0] == outcomes_of(replies, len(replies) or 1)[0]


@given(st.lists(st.one_of(_REPLY, st.binary(max_size=50)), max_size=12))
def test_only_a_250_to_the_dot_delivers(said: list[bytes]) -> None:
    client = ready()
    client.begin(mail("a@example.com", "b@example.com"))
    for octets in said:
        client.receive(octets)
    client.lost("gone")
    assert len(client.outcomes) == 2
    assert Result.DELIVERED not in results(client)
