"""rspamd's filter at a door: what it is asked, what its answers do, and what becomes of mail without one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mqcd.submit.filters.handlers import BadFilter, make_handler
from mqcd.submit.filters.http import MAX_ANSWER, BadUrl, Service
from tests.fakes.rspamd import FakeRspamd, running
from tests.unit.submit.support import House, open_house, server, visit

RSPAMD = "mqcd.submit.filters.rspamd:Rspamd"
CONTENT = b"Subject: old\r\nX-Old: 1\r\n\r\nbody\r\n"


def house(fake: FakeRspamd, *options: str) -> House:
    return House(server(filter=RSPAMD, filter_options=(f"url={fake.url}", *options)))


async def send(house: House) -> tuple[str, bytes]:
    """The reply to a message, and its content in the queue; b"" = it is not there."""
    async with open_house(house), visit(house) as client:
        await client.say("EHLO mail.example.net")
        for line in (
            "MAIL FROM:<a@example.net>",
            "RCPT TO:<b@example.com>",
            "RCPT TO:<c@example.com>",
            "DATA",
        ):
            await client.say(line)
        reply = await client.send(CONTENT + b".\r\n")
        queued = await house.queued()
        return reply, await house.content(queued[0]) if queued else b""


async def test_what_rspamd_is_asked() -> None:
    async with running() as fake:
        reply, content = await send(house(fake))
        assert reply.startswith("250 ")
        assert content == CONTENT
        [asked] = fake.asked
        assert asked.line == "POST /checkv2 HTTP/1.1"
        assert asked.body == CONTENT
        assert asked.all("From") == ["a@example.net"]
        assert asked.all("Rcpt") == ["b@example.com", "c@example.com"]
        assert asked.all("IP") == ["127.0.0.1"]
        assert asked.all("Helo") == ["mail.example.net"]
        assert asked.all("User") == []


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ({"action": "reject"}, "550 5.7.1 This message is refused as spam\r\n"),
        ({"action": "reject", "messages": {"smtp_message": "No\r\n250 ok"}}, "550 5.7.1 No 250 ok\r\n"),
        ({"action": "discard"}, "550 5.7.1 This message is refused as spam\r\n"),
        ({"action": "soft reject", "messages": {"smtp_message": "Ratelimit"}}, "451 4.7.1 Ratelimit\r\n"),
        ({"action": "greylist"}, "451 4.7.1 Greylisted, try again later\r\n"),
    ],
)
async def test_actions_that_refuse(answer: dict[str, Any], reply: str) -> None:
    async with running(answer=answer) as fake:
        ours = house(fake)
        assert await send(ours) == (reply, b"")
        assert ours.reasons() == ["filter"]


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"action": "no action", "score": 1.5}, CONTENT),
        ({"action": "add header"}, b"X-Spam: Yes\r\n" + CONTENT),
        (
            {"action": "rewrite subject", "subject": "*** new"},
            b"Subject: *** new\r\nX-Old: 1\r\n\r\nbody\r\n",
        ),
        (
            {
                "action": "no action",
                "milter": {
                    "add_headers": {
                        "X-A": {"value": "a\n\tb", "order": 0},
                        "X-B": ["c", "d"],
                        "bad name": "e",
                    },
                    "remove_headers": {"X-Old": 0},
                },
            },
            b"X-A: a\r\n\tb\r\nX-B: c\r\nX-B: d\r\nSubject: old\r\n\r\nbody\r\n",
        ),
        ({"action": "something new", "milter": {"add_headers": 7, "remove_headers": []}}, CONTENT),
    ],
)
async def test_actions_that_change(answer: dict[str, Any], content: bytes) -> None:
    async with running(answer=answer) as fake:
        reply, got = await send(house(fake))
        assert reply.startswith("250 ")
        assert got == content


GOOD = json.dumps({"action": "reject"}).encode()
BROKEN = [
    b"",
    b"SSH-2.0-OpenSSH\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + GOOD,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + GOOD,
    b"HTTP/1.1 200 OK\r\n\r\n" + GOOD[:-3],
    b'HTTP/1.1 200 OK\r\n\r\n{"error": "no worker"}',
    b"HTTP/1.1 200 OK\r\n\r\n[1]",
    b"HTTP/1.1 200 OK\r\n\r\n" + b" " * MAX_ANSWER + GOOD,
]


@pytest.mark.parametrize("raw", BROKEN)
@pytest.mark.parametrize("failopen", [True, False])
async def test_no_usable_answer(raw: bytes, failopen: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with running(raw=raw) as fake:
        reply, content = await send(house(fake, f"failopen={'Y' if failopen else 'N'}"))
        assert reply.startswith("250 " if failopen else "451 4.7.1 ")
        assert bool(content) is failopen
        assert "rspamd cannot be asked" in caplog.text


async def test_an_answer_in_time_or_none() -> None:
    async with running(stalls=True) as fake:
        reply, _ = await send(house(fake, "timeout=20ms", "failopen=N"))
        assert reply.startswith("451 ")
        # On a busy machine the time is over before the question has come.
        assert len(fake.asked) <= 1


async def test_a_server_that_is_gone_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as fake:
        pass
    ours = house(fake)
    async with open_house(ours), visit(ours) as client:
        for _ in range(2):
            await client.begin()
            assert (await client.send(CONTENT + b".\r\n")).startswith("250 ")
    assert len([each for each in caplog.records if "cannot be asked" in each.message]) == 1


async def test_a_large_message_passes_unasked() -> None:
    async with running(answer={"action": "reject"}) as fake:
        reply, _ = await send(house(fake, f"maxsize={len(CONTENT) - 1}"))
        assert reply.startswith("250 ")
        assert fake.asked == []
        reply, _ = await send(house(fake, "maxsize=0"))
        assert reply.startswith("550 ")


@pytest.mark.parametrize(
    "option",
    [
        "url=https://h",
        "url=h:1",
        "url=http://",
        "url=http://h:x",
        "url=http://a@h",
        "timeout=0",
        "timeout=10m",
        "maxsize=x",
        "failopen=maybe",
        "header=a b: c",
        "other=1",
        "url",
    ],
)
def test_options_that_cannot_be(option: str) -> None:
    with pytest.raises(BadFilter, match="Rspamd: "):
        make_handler(RSPAMD, (option,))


def test_an_option_comes_once() -> None:
    with pytest.raises(BadFilter, match="twice"):
        make_handler(RSPAMD, ("timeout=1s", "timeout=2s"))


def test_a_url_has_a_host() -> None:
    with pytest.raises(BadUrl, match="expected an URL"):
        Service("http:///x")
