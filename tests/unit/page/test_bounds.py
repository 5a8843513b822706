"""What holds for every request: names, sizes, and what browsers are forbidden."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from mqcd.page.bounds import MAX_BODY, Bounds
from mqcd.page.client import Crowded
from tests.fakes.control import refusal
from tests.unit.page.support import NAME, OneHost, Site


async def test_another_hosts_name_is_refused(site: Site) -> None:
    async with site.client("operator") as client:
        for name in ("evil.test", "mail.test.evil.test", ""):
            for path in ("/", "/v1/areas", "/login", "/static/page.css"):
                assert (await client.get(path, headers={"Host": name})).status_code == 421
    assert site.asked == []


async def test_browsers_may_not_frame_run_or_keep_it(site: Site) -> None:
    async with site.client() as client:
        for path in ("/", "/none", "/login", "/static/page.css", "/v1/areas"):
            headers = (await client.get(path)).headers
            assert headers["x-frame-options"] == "DENY"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"


async def test_a_body_announced_too_large_is_refused(site: Site) -> None:
    async with site.client("injector") as client:
        size = {"Content-Length": str(MAX_BODY + 1), "Content-Type": "message/rfc822"}
        answer = await client.post("/v1/messages", headers=size, content=b"")
    assert answer.status_code == 413
    assert site.asked == []


async def test_a_body_that_grows_too_large_is_refused(site: Site) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    async with site.client("injector") as client:
        lies = {"Content-Length": "10", "Content-Type": "message/rfc822"}
        answer = await client.post("/v1/messages", headers=lies, content=endless())
    assert answer.status_code == 413


async def test_a_server_that_is_down_is_shown(open_site: Site) -> None:
    open_site.control.down = "no server runs at /run/control.sock"
    async with open_site.client() as client:
        page, call = await client.get("/"), await client.get("/v1/areas")
    assert (page.status_code, call.status_code) == (503, 503)
    assert "no server runs at /run/control.sock" in page.text
    assert call.json()["detail"] == "no server runs at /run/control.sock"


async def test_no_room_is_said_with_a_time() -> None:
    async def full(*_: object) -> None:
        raise Crowded("no room")

    transport = httpx.ASGITransport(Bounds(full, hosts=OneHost()))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{NAME}") as client:
        answer = await client.post("/v1/messages")
    assert (answer.status_code, answer.headers["retry-after"], answer.json()["detail"]) == (
        503,
        "60",
        "no room",
    )


async def test_a_reason_is_escaped(open_site: Site) -> None:
    open_site.control.answers["/readyz"] = refusal(503, "<script>alert(1)</script>")
    async with open_site.client() as client:
        answer = await client.get("/")
    assert "&lt;script&gt;" in answer.text
