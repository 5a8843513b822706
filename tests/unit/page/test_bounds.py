"""What holds for every request: names, sizes, and what browsers are forbidden."""

from __future__ import annotations

from mqcd.page.bounds import MAX_BODY
from tests.fakes.control import refusal
from tests.unit.page.support import Site


async def test_another_hosts_name_is_refused() -> None:
    site = Site()
    async with site.client() as client:
        for name in ("evil.test", "mail.test.evil.test", ""):
            assert (await client.get("/", headers={"Host": name})).status_code == 421
    assert site.control.asked == []


async def test_browsers_may_not_frame_run_or_keep_it() -> None:
    async with Site().client() as client:
        for path in ("/", "/none", "/static/page.css"):
            headers = (await client.get(path)).headers
            assert headers["x-frame-options"] == "DENY"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"


async def test_a_body_announced_too_large_is_refused() -> None:
    async with Site().client() as client:
        answer = await client.post("/", headers={"Content-Length": str(MAX_BODY + 1)}, content=b"")
    assert answer.status_code == 413


async def test_a_server_that_is_down_is_shown() -> None:
    site = Site()
    site.control.down = "no server runs at /run/control.sock"
    async with site.client() as client:
        answer = await client.get("/")
    assert answer.status_code == 503
    assert "no server runs at /run/control.sock" in answer.text


async def test_a_reason_is_escaped() -> None:
    site = Site()
    site.control.answers["/readyz"] = refusal(503, "<script>alert(1)</script>")
    async with site.client() as client:
        answer = await client.get("/")
    assert "&lt;script&gt;" in answer.text
