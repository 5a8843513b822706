"""The state table of the client's session."""

from collections.abc import Callable

import pytest

from mqcd.core.errors import IllegalTransition
from mqcd.deliver.smtp.client import SmtpClient
from mqcd.deliver.smtp.exchange import Options
from mqcd.deliver.smtp.states import DECIDED, STATES, WAITING, Event, State
from tests.unit.deliver.smtp_clients import mail, ready


def test_each_state_has_a_row_and_can_end() -> None:
    assert set(STATES) == set(State)
    assert all(Event.END in row for state, row in STATES.items() if state is not State.ENDED)


def test_each_state_can_be_reached() -> None:
    assert {State.HANDSHAKE}.union(*(set(row.values()) for row in STATES.values())) == set(State)


def test_only_quit_waits_with_all_decided() -> None:
    assert {State.QUIT} == WAITING & DECIDED


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.begin(mail()),
        lambda client: client.content(b"x", last=True),
        lambda client: client.quit(),
        lambda client: client.tls_started(),
    ],
)
def test_a_call_out_of_order_raises(call: Callable[[SmtpClient], object]) -> None:
    with pytest.raises(IllegalTransition, match=r"^SMTP session: "):
        call(SmtpClient(Options(hello="me.example")))


def test_a_transaction_goes_through_its_states() -> None:
    client = ready()
    seen = [client.state, client.begin(mail())]
    seen.append(client.receive(b"250 ok\r\n250 ok\r\n354 go\r\n"))
    client.content(b"x\r\n", last=True)
    seen.append(client.state)
    seen.append(client.receive(b"250 taken\r\n"))
    seen.append(client.quit())
    seen.append(client.receive(b"221 bye\r\n"))
    names = ["ready", "envelope", "content", "dot", "ready", "quit", "ended"]
    assert [state.value for state in seen] == names
