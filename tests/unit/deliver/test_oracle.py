"""Every way that a server may answer a transaction, against a few lines that say what must become of whom."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options, Result
from mqcd.deliver.smtp.states import State
from tests.unit.deliver.smtp_clients import mail, offer, ready

TAKEN, LATER, NEVER = 250, 450, 550
_CODES = st.sampled_from([TAKEN, TAKEN, LATER, NEVER])


@dataclass(frozen=True)
class Server:
    """How a server answers one message with some recipients."""

    lmtp: bool
    bdat: bool
    window: int
    mail: int
    rcpt: list[int]
    data: int
    """To DATA, or to the first chunk that is not the last."""
    end: list[int]
    """To the end of the content; SMTP servers give the first alone."""
    cut: int | None
    """The connection breaks after so many replies."""

    @property
    def expected(self) -> list[Result]:
        """What becomes of each recipient when the connection holds."""
        ends = iter(self.end)
        found = []
        for code in self.rcpt:
            codes = [self.mail, code, self.data]
            if all(each == TAKEN for each in codes):
                codes.append(next(ends) if self.lmtp else self.end[0])
            first = next((each for each in codes if each != TAKEN), TAKEN)
            found.append({TAKEN: Result.DELIVERED, LATER: Result.DEFERRED, NEVER: Result.BOUNCED}[first])
        return found


@st.composite
def _servers(draw: st.DrawFn) -> Server:
    rcpt = draw(st.lists(_CODES, min_size=1, max_size=4))
    return Server(
        lmtp=draw(st.booleans()),
        bdat=draw(st.booleans()),
        window=draw(st.sampled_from([0, 1, 2, 25])),
        mail=draw(_CODES),
        rcpt=rcpt,
        data=draw(_CODES),
        end=draw(st.lists(_CODES, min_size=len(rcpt), max_size=len(rcpt))),
        cut=draw(st.none() | st.integers(0, 12)),
    )


class Play:
    """One session: reads what the client says, answers as `server` does."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.left = server.cut
        self.accepted = 0
        self.in_mail = False
        self.failed_chunk = False
        self.ended = False
        extensions = [*(["CHUNKING"] if server.bdat else []), *(["PIPELINING"] if server.window != 1 else [])]
        options = Options(hello="me.example", lmtp=server.lmtp, maxpipeline=server.window)
        self.smtp: SmtpClient = ready(offer(*extensions), options)

    def run(self) -> None:
        """Until the transaction is over or the connection breaks."""
        server, smtp = self.server, self.smtp
        smtp.begin(mail(*(f"r{number}@example.com" for number in range(len(server.rcpt)))))
        chunks = 0
        while smtp.state not in (State.READY, State.ENDED):
            if smtp.state is State.CONTENT:
                chunks += 1
                sent = smtp.content(b"x\r\n", chunks == 2)
                if chunks == 2:
                    self.end()
                elif server.bdat:
                    assert sent.startswith(b"BDAT 3\r\n")
                    self.say(self.chunk())
                continue
            said = smtp.take()
            assert said, "the client waits for nothing"
            for line in said.decode().splitlines():
                self.answer(line)

    def answer(self, line: str) -> None:
        server, verb = self.server, line.split(" ")[0]
        if verb == "MAIL":
            self.in_mail = server.mail == TAKEN
            self.say(server.mail)
        elif verb == "RCPT":
            code = server.rcpt[int(line.partition("<r")[2].partition("@")[0])] if self.in_mail else 503
            self.accepted += code == TAKEN
            self.say(code)
        elif verb == "DATA":
            self.say((354 if server.data == TAKEN else server.data) if self.accepted else 503)
        else:
            raise AssertionError(f"nobody expects {line!r}")

    def chunk(self) -> int:
        """The reply to a chunk that is not the last."""
        self.failed_chunk = self.server.data != TAKEN
        return self.server.data

    def end(self) -> None:
        """The replies to the end of the content."""
        self.ended = True
        count = self.accepted if self.server.lmtp else 1
        for code in self.server.end[:count]:
            self.say(503 if self.failed_chunk else code)

    def say(self, code: int) -> None:
        """A reply, unless the connection has broken."""
        if self.left == 0:
            self.smtp.lost("gone")
            return
        self.left = None if self.left is None else self.left - 1
        self.smtp.receive(f"{code} said\r\n".encode())


@settings(max_examples=400)
@given(_servers())
def test_each_recipient_gets_the_outcome_that_it_must_get(server: Server) -> None:
    play = Play(server)
    play.run()
    outcomes = play.smtp.outcomes
    assert len(outcomes) == len(server.rcpt)
    for outcome, expected in zip(outcomes, server.expected, strict=True):
        if outcome.reply.status == "4.4.2":
            assert outcome.result is Result.DEFERRED
            assert outcome.possibly_delivered is play.ended
        else:
            assert outcome.result is expected
            assert not outcome.possibly_delivered
    if server.cut is None:
        assert play.smtp.state is State.READY
        assert [outcome.result for outcome in outcomes] == server.expected


@settings(max_examples=200)
@given(_servers())
def test_a_doubtful_transaction_is_reset_before_the_next(server: Server) -> None:
    play = Play(server)
    play.run()
    if play.smtp.state is not State.READY:
        return
    play.smtp.begin(mail("a@example.com"))
    reset = play.smtp.take().startswith(b"RSET\r\n")
    # RFC 3030, 2: BDAT that failed leaves the transaction as it is. DATA ends it, whatever the reply.
    ends = server.end[: play.accepted if server.lmtp else 1]
    failed = play.failed_chunk or any(code != TAKEN for code in ends)
    assert reset is (not play.ended or (server.bdat and failed))
