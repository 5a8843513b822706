"""A webhook over HTTP: what a receiver sees, and what its answers mean."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from mqcd.config.settings import WebhookSettings
from mqcd.core.errors import ConfigError
from mqcd.disk.durable import Disk
from mqcd.feeds.sink import NotTaken
from mqcd.feeds.webhook import FIELD, Webhook, secrets_of, signature
from tests.fakes.clock import START_MS, FakeClock

LINES = [b'{"event":"delivered","id":"n/0/1"}', b'{"event":"bounced","id":"n/0/2"}']
OLD, NEW = "an old secret of 30 characters", "a new secret of 30 characters."


def webhook(answer: Callable[[httpx.Request], httpx.Response], secretfile: Path | None = None) -> Webhook:
    settings = WebhookSettings(name="crm", url="https://crm.example/in", secretfile=secretfile)
    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return Webhook(settings, FakeClock(), Disk(), client)


async def test_a_request_holds_the_events_and_its_signatures(tmp_path: Path) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    secrets = tmp_path / "secret"
    secrets.write_text(f"# the newest first\n{NEW}\n{OLD}\n")
    hook = webhook(answer, secrets)
    await hook.send(LINES)
    await hook.close()
    [request] = seen
    assert (request.method, str(request.url)) == ("POST", "https://crm.example/in")
    assert json.loads(request.content) == {"webhook": "crm", "events": [json.loads(line) for line in LINES]}
    at, *signatures = request.headers[FIELD].split(",")
    assert at == f"t={START_MS // 1000}"
    signed = f"{START_MS // 1000}.".encode() + request.content
    expected = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in (NEW, OLD)]
    assert signatures == [f"v1={digest}" for digest in expected]


@pytest.mark.parametrize(
    ("answer", "text", "wait_ms"),
    [
        (httpx.Response(500), "HTTP status 500", 0),
        (httpx.Response(301, headers={"Location": "https://other.example/"}), "HTTP status 301", 0),
        (httpx.Response(404), "HTTP status 404", 0),
        (httpx.Response(429, headers={"Retry-After": "7"}), "HTTP status 429", 7000),
        (httpx.Response(503, headers={"Retry-After": "999999"}), "HTTP status 503", 3_600_000),
        (
            httpx.Response(503, headers={"Retry-After": "Fri, 15 Jan 2027 08:00:30 GMT"}),
            "HTTP status 503",
            30_000,
        ),
        (httpx.Response(503, headers={"Retry-After": "soon"}), "HTTP status 503", 0),
        (httpx.Response(503, headers={"Retry-After": "9" * 5000}), "HTTP status 503", 3_600_000),
    ],
)
async def test_other_answers_take_nothing(answer: httpx.Response, text: str, wait_ms: int) -> None:
    hook = webhook(lambda _: answer)
    with pytest.raises(NotTaken) as caught:
        await hook.send(LINES)
    await hook.close()
    assert (str(caught.value), caught.value.wait_ms) == (text, wait_ms)


async def test_a_connection_that_fails_takes_nothing() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    hook = webhook(refuse)
    with pytest.raises(NotTaken, match="ConnectError: refused"):
        await hook.send(LINES)
    await hook.close()


async def test_a_url_that_cannot_be_asked_takes_nothing() -> None:
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200)))
    hook = Webhook(WebhookSettings(name="crm", url="https://[::1/in"), FakeClock(), Disk(), client)
    with pytest.raises(NotTaken, match="InvalidURL"):
        await hook.send(LINES)
    await hook.close()


async def test_no_secret_no_request(tmp_path: Path) -> None:
    hook = webhook(lambda _: httpx.Response(200), tmp_path / "missing")
    with pytest.raises(NotTaken, match="the secret cannot be read"):
        await hook.send(LINES)
    await hook.close()


@pytest.mark.parametrize("text", ["", "# none\n", "short\n", "\n".join(["x" * 30] * 5)])
def test_bad_secrets_are_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"crm\.secret") as caught:
        secrets_of(text, "crm.secret")
    assert "short" not in str(caught.value)


def test_the_signature_covers_time_and_body() -> None:
    made = {signature([b"s" * 16], at, body) for at in (1, 2) for body in (b"a", b"b")}
    assert len(made) == 4
