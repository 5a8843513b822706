"""Who gets through the gate, and what other sites, missing roles and leaked tokens come to."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from mqcd.config.settings import PageSettings
from mqcd.disk.durable import Disk
from mqcd.page.access.access import IDLE_MS, LONGEST_MS, MOST_FAILURES
from mqcd.page.access.file import changing
from mqcd.page.access.holders import LOOK_MS
from tests.fakes.control import said
from tests.unit.page.support import NAME, Site, bearer, secret

BATCH = "/v1/batch"
HERE, ELSEWHERE = {"Origin": f"http://{NAME}"}, {"Origin": "http://evil.test"}


async def login(client: httpx.AsyncClient, name: str = "operator") -> httpx.Response:
    return await client.post("/login", data={"token": secret(name)}, headers=HERE)


async def csrf(site: Site, client: httpx.AsyncClient) -> str:
    """What the page puts into its forms."""
    site.control.answers["/readyz"] = said("ok")
    found = re.search(r'X-CSRF-Token":\s*"([^"]+)"', (await client.get("/")).text.replace("&#34;", '"'))
    assert found
    return found[1]


# ---------------------------------------------------------------- programs


@pytest.mark.parametrize(
    ("name", "method", "path", "status"),
    [
        ("", "GET", "/v1/areas", 401),
        ("reader", "GET", "/v1/areas", 200),
        ("operator", "GET", "/v1/areas", 200),
        ("injector", "GET", "/v1/areas", 403),
        ("reader", "GET", "/v1/messages/ABC", 200),
        ("reader", "GET", "/v1/messages/ABC/content", 403),
        ("operator", "GET", "/v1/messages/ABC/content", 200),
        ("reader", "POST", BATCH, 403),
        ("operator", "POST", BATCH, 200),
        ("injector", "POST", BATCH, 403),
        ("operator", "POST", "/v1/messages", 403),
        ("injector", "POST", "/v1/messages", 200),
        ("operator", "POST", "/v1/records", 404),
        ("operator", "POST", "/v1/content", 404),
        ("operator", "GET", BATCH + "/x", 404),
        ("operator", "DELETE", BATCH, 405),
    ],
)
async def test_roles_decide(site: Site, name: str, method: str, path: str, status: int) -> None:
    for known in ("/v1/areas", BATCH, "/v1/messages", "/v1/messages/ABC", "/v1/messages/ABC/content"):
        site.control.answers[known] = said({})
    async with site.client(name) as client:
        answer = await client.request(method, path, json={} if method == "POST" else None)
    assert answer.status_code == status
    assert len(site.asked) == (status == 200)


async def test_a_change_is_asked_in_the_tokens_name(site: Site) -> None:
    site.control.answers[BATCH] = said({})
    async with site.client("operator") as client:
        await client.post(BATCH, json={"action": "hold"}, headers={"X-Mqcd-Author": "root"})
    [asked] = site.asked
    assert (asked.author, asked.body) == ("token:operator", b'{"action":"hold"}')


async def test_a_call_is_asked_as_it_was_checked(site: Site) -> None:
    async with site.client("operator") as client:
        for path in ("/v1/areas%2f..%2frecords", "/v1//records", "/v1/%72ecords", "/v1/areas%3F/content"):
            assert (await client.get(path)).status_code == 404
        await client.get("/v1/messages/%2e%2e?a=%3F")
        await client.get("/v1/messages/a%3Fb%23")
    assert [each.target for each in site.asked] == ["/v1/messages/..?a=%3F", "/v1/messages/a%3Fb%23"]


@pytest.mark.parametrize(
    "shown", ["Bearer", "Bearer x", "Basic YTpi", f"Bearer {secret('unknown')}", "Bearer é"]
)
async def test_a_wrong_token_is_refused(site: Site, shown: str) -> None:
    async with site.client() as client:
        answer = await client.get("/v1/areas", headers={b"Authorization": shown.encode()})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_guessing_client_is_slowed_and_others_are_not(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.client() as client:
        wrong = [await client.get("/v1/areas", headers=bearer("unknown")) for _ in range(MOST_FAILURES + 1)]
        assert [answer.status_code for answer in wrong] == [401] * MOST_FAILURES + [429]
        site.control.answers["/v1/areas"] = said([])
        assert (await client.get("/v1/areas", headers=bearer("reader"))).status_code == 200
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_a_token_in_an_address_is_refused(site: Site) -> None:
    async with site.client("operator") as client:
        for path in (
            f"/v1/areas?token={secret('reader')}",
            f"/{secret('reader')}",
            f"/?x={secret('reader')}",
        ):
            answer = await client.get(path)
            assert answer.status_code == 400
            assert secret("reader") not in answer.text
    assert site.asked == []


async def test_a_removed_token_is_refused(site: Site) -> None:
    site.control.answers["/v1/areas"] = said([])
    async with site.client("reader") as client:
        assert (await client.get("/v1/areas")).status_code == 200
        with changing(site.tokens, Disk()) as tokens:
            del tokens["reader"]
        site.clock.advance(LOOK_MS)
        assert (await client.get("/v1/areas")).status_code == 401


# ---------------------------------------------------------------- browsers


async def test_a_browser_without_a_session_is_sent_to_the_login(site: Site) -> None:
    async with site.client() as client:
        page = await client.get("/")
        piece = await client.get("/", headers={"HX-Request": "true"})
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    assert (piece.status_code, piece.headers["hx-redirect"]) == (401, "/login")
    assert site.asked == []


async def test_no_address_passes_for_the_logins(site: Site) -> None:
    site.control.answers["/v1/areas"] = said([])
    async with site.client() as client:
        for path in ("/login%3F", "/login%23", "/login/", "//login", "/login;x", "/LOGIN", "/static%2f..%2f"):
            assert (await client.get(path)).status_code in (303, 404)
        for path in ("/v1/areas%3F", "/static/../v1/areas", "/static/%2e%2e/v1/areas", "/login/../v1/areas"):
            assert (await client.get(path)).status_code in (303, 401, 404)
    assert site.asked == []


async def test_a_cookie_is_for_this_site_alone(site: Site) -> None:
    site = replace(site, page=PageSettings(enabled=True, certfile=Path("c.pem")))
    async with site.client() as client:
        answer = await client.post("/login", data={"token": secret("reader")})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-mqcd=")
    assert {"Path=/", "HttpOnly", "SameSite=Strict", "Secure"} <= set(cookie.split("; "))
    assert secret("reader") not in cookie


async def test_a_wrong_token_does_not_log_in(site: Site) -> None:
    async with site.client() as client:
        answer = await login(client, "unknown")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert secret("unknown") not in answer.text


async def test_a_change_needs_the_sessions_csrf_token(site: Site) -> None:
    site.control.answers[BATCH] = said({})
    async with site.client() as client:
        await login(client)
        token = await csrf(site, client)
        for headers in ({}, {"X-CSRF-Token": "wrong"}, {"X-CSRF-Token": ""}):
            assert (await client.post(BATCH, json={}, headers=headers)).status_code == 403
        assert (await client.post(BATCH, json={}, headers={"X-CSRF-Token": token})).status_code == 200
        assert (await client.post("/logout", data={"csrf": "wrong"})).status_code == 403
        assert (await client.post("/logout", data={"csrf": token})).status_code == 303
        assert (await client.get("/")).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        ELSEWHERE,
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": f"http://{NAME}.evil.test"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_another_sites_page_changes_nothing(
    site: Site, open_site: Site, headers: dict[str, str]
) -> None:
    async with site.client() as client:
        await login(client)
        headers |= {"X-CSRF-Token": await csrf(site, client)}
        site.control.asked.clear()
        assert (await client.post(BATCH, json={}, headers=headers)).status_code == 403
    async with open_site.client() as client:
        assert (await client.post(BATCH, json={}, headers=headers)).status_code == 403
        assert (await client.post("/login", data={"token": "x"}, headers=headers)).status_code == 403
    assert site.asked == open_site.asked == []


async def test_a_reader_may_look_and_not_change(site: Site) -> None:
    async with site.client() as client:
        await login(client, "reader")
        headers = {"X-CSRF-Token": await csrf(site, client)}
        assert (await client.post(BATCH, json={}, headers=headers)).status_code == 403


@pytest.mark.parametrize(("step", "count"), [(IDLE_MS, 1), (IDLE_MS - 1, LONGEST_MS // (IDLE_MS - 1) + 1)])
async def test_a_session_ends(site: Site, step: int, count: int) -> None:
    site.control.answers["/readyz"] = said("ok")
    async with site.client() as client:
        await login(client)
        assert (await client.get("/")).status_code == 200
        for _ in range(count - 1):
            site.clock.advance(step)
            assert (await client.get("/")).status_code == 200
        site.clock.advance(step)
        assert (await client.get("/")).status_code == 303


async def test_a_session_ends_with_its_token(site: Site) -> None:
    async with site.client() as client:
        await login(client)
        with changing(site.tokens, Disk()) as tokens:
            del tokens["operator"]
        site.clock.advance(LOOK_MS)
        assert (await client.get("/")).status_code == 303


# ---------------------------------------------------------------- open to all


async def test_open_to_all_needs_no_token(open_site: Site) -> None:
    open_site.control.answers[BATCH] = said({})
    async with open_site.client() as client:
        assert (await client.get("/")).headers["set-cookie"].startswith("mqcd=")
        token = await csrf(open_site, client)
        assert (await client.post(BATCH, json={}, headers={"X-CSRF-Token": token})).status_code == 200
        assert (await client.post(BATCH, json={})).status_code == 403
    async with open_site.client() as client:
        assert (await client.post(BATCH, json={})).status_code == 200
    assert {asked.author for asked in open_site.asked if asked.path == BATCH} == {"page"}


async def test_open_to_all_takes_no_form_of_another_site(open_site: Site) -> None:
    open_site.control.answers[BATCH] = said({})
    async with open_site.client() as client:
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ):
            answer = await client.post(BATCH, content=b"{}", headers={"Content-Type": kind})
            assert answer.status_code == 415
