"""A session against a transport that tests hold in their hands."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import cast

import pytest

from mqcd.core.smtp.reply import Reply
from mqcd.submit.policy.relay import RelayPolicy
from mqcd.submit.session.session import _TURN, Session
from mqcd.submit.session.wire import HIGH_WATER
from tests.unit.submit.support import House, Transport, server

TIMEOUT = Reply(code=421, status="4.4.2", text="Timeout")


class BrokenPolicy(RelayPolicy):
    """Stands for a fault of ours inside a command."""

    def complete(self, path: str) -> str:
        raise RuntimeError("a fault")


def connect(house: House) -> tuple[Session, Transport]:
    """A session that has greeted its client."""
    transport = Transport()
    session = house.door.receive("192.0.2.1")
    session.connection_made(cast("asyncio.Transport", transport))
    transport.written = b""
    return session, transport


async def test_a_client_that_does_not_read_is_not_listened_to() -> None:
    session, transport = connect(House(server()))
    session.pause_writing()
    session.data_received(b"NOOP\r\n" * (HIGH_WATER // 6 + 1))
    assert transport.written == b""
    assert transport.paused
    session.resume_writing()
    while transport.written.count(b"\r\n") <= HIGH_WATER // 6:
        await asyncio.sleep(0)
    reading_again = not transport.paused
    assert reading_again


async def test_a_client_that_never_reads_loses_its_connection() -> None:
    house = House(server(timeout=1000))
    session, transport = connect(house)
    session.pause_writing()
    session.check_deadline(house.clock.monotonic() + 999, TIMEOUT)
    assert not transport.aborted
    session.check_deadline(house.clock.monotonic() + 1001, TIMEOUT)
    assert transport.aborted


async def test_a_client_that_never_reads_is_cut_off_also_behind_a_message() -> None:
    house = House(server(timeout=1000))
    session, transport = connect(house)
    session.pause_writing()
    # Its content came all the same.
    session.deadlines.owes_nothing()
    session._task_ended(None)
    session.check_deadline(house.clock.monotonic() + 1001, TIMEOUT)
    assert transport.aborted


async def test_a_client_that_takes_no_last_reply_loses_its_connection() -> None:
    house = House(server(timeout=1000))
    session, transport = connect(house)
    session.data_received(b"QUIT\r\n")
    assert transport.written.startswith(b"221 2.0.0 ")
    session.check_deadline(house.clock.monotonic() + 1001, TIMEOUT)
    assert transport.aborted


async def test_a_client_that_takes_a_part_of_the_last_replies_loses_its_connection() -> None:
    house = House(server(timeout=1000))
    session, transport = connect(house)
    session.pause_writing()
    session.end()
    session.resume_writing()
    session.check_deadline(house.clock.monotonic() + 1001, TIMEOUT)
    assert transport.aborted


async def test_a_connection_is_handed_over_as_full_as_it_is() -> None:
    house = House(server(timeout=1000))
    session, transport = connect(house)
    session.pause_writing()
    connection = session.hand_over()
    session.check_deadline(house.clock.monotonic() + 1001, TIMEOUT)
    assert not transport.closed
    draining = asyncio.ensure_future(connection.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    connection.resume_writing()
    await draining


async def test_what_comes_behind_quit_is_not_read() -> None:
    session, transport = connect(House(server()))
    session.data_received(b"QUIT\r\nNOOP\r\n")
    session.data_received(b"NOOP\r\n")
    assert transport.written.count(b"\r\n") == 1


async def test_one_client_does_not_hold_up_the_others() -> None:
    session, transport = connect(House(server()))
    session.data_received(b"NOOP\r\n" * 1000)
    assert 0 < transport.written.count(b"\r\n") < 1000
    for _ in range(20):
        await asyncio.sleep(0)
    assert transport.written.count(b"\r\n") == 1000


async def test_a_client_that_goes_on_sending_has_no_more_turns() -> None:
    session, transport = connect(House(server()))
    for _ in range(10):
        session.data_received(b"NOOP\r\n" * 1000)
        await asyncio.sleep(0)
    assert 0 < transport.written.count(b"\r\n") <= 11 * _TURN


async def test_a_fault_of_ours_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    house = House(server())
    session, transport = connect(house)
    session.data_received(b"EHLO c\r\n")
    transport.written = b""
    house.door.intake.book.common.policy = BrokenPolicy()
    session.data_received(b"MAIL FROM:<a@example.net>\r\nNOOP\r\n")
    assert transport.written == b"451 4.3.0 Local error, try again later\r\n250 2.0.0 Ok\r\n"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert [record.__dict__["session"].partition("-")[0] for record in caplog.records] == ["test"]
    assert house.reasons() == ["fault"]


@pytest.mark.parametrize("said", [b"QUIT\r\n", b"NOOP\r\n"], ids=["after QUIT", "without"])
async def test_each_session_logs_its_end_once(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="mqcd.submit.session.session")
    session, _ = connect(House(server()))
    session.data_received(said)
    assert caplog.messages == []
    session.connection_lost(None)
    assert caplog.messages == ["from 192.0.2.1: 0 messages"]


async def test_a_session_that_is_over_is_freed_at_once() -> None:
    house = House(server())
    await house.store.open()
    session, transport = connect(house)
    gc.disable()
    try:
        for line in (b"EHLO c", b"MAIL FROM:<a@example.net>", b"RCPT TO:<b@example.com>", b"DATA", b"."):
            session.data_received(line + b"\r\n")
        while b"250 2.0.0 Ok: queued" not in transport.written:
            await asyncio.sleep(0)
        session.connection_lost(None)
        kept = weakref.ref(session)
        del session
        assert kept() is None
    finally:
        gc.enable()
