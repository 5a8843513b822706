"""The API as its programs see it: what is offered, how refusals look, what passes through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mqcd.daemon.control.api.openapi import describe
from mqcd.daemon.control.api.table import TABLE
from mqcd.page.access.tokens import Role
from mqcd.page.api.calls import DESCRIPTION, LOOK_MS, Calls
from mqcd.page.api.proxy import MOST_LIVE
from mqcd.page.client import Answer
from tests.fakes.control import described, refusal, said
from tests.unit.page.support import Site


async def test_the_description_is_the_servers_with_tokens(site: Site) -> None:
    async with site.client("injector") as client:
        document = (await client.get(DESCRIPTION)).json()
    assert document["paths"].keys() == described()["paths"].keys()
    operation = document["paths"]["/v1/areas"]["get"]
    assert operation["security"] == [{"token": []}]
    assert [each["name"] for each in operation["parameters"]] == ["Idempotency-Key"]
    assert {"401", "403", "429"} <= operation["responses"].keys()
    assert list(operation["responses"]["503"]["content"]) == ["application/problem+json"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


async def test_each_call_of_the_server_has_a_role(site: Site) -> None:
    site.control.answers[DESCRIPTION] = said(describe(TABLE, "1.0"))
    calls = Calls(site.control, site.clock)
    for path, methods in TABLE.items():
        for method, operation in methods.items():
            expected = Role(operation.role.value)
            assert await calls.role_of(method.value, path.replace("{spid}", "A")) is expected
            assert expected is not Role.READ or method.value == "GET"
    assert await calls.role_of("GET", "/v1/messages/A/content") is Role.OPERATE


async def test_a_newer_servers_calls_are_found(site: Site) -> None:
    site.control.answers["/v1/new"] = said({})
    async with site.client("reader") as client:
        assert (await client.get("/v1/new")).status_code == 404
        newer = described()
        newer["paths"]["/v1/new"] = newer["paths"]["/v1/areas"]
        site.control.answers[DESCRIPTION] = said(newer)
        assert (await client.get("/v1/new")).status_code == 404
        site.clock.advance(LOOK_MS)
        assert (await client.get("/v1/new")).status_code == 200


async def test_a_server_without_a_description_offers_nothing(site: Site) -> None:
    del site.control.answers[DESCRIPTION]
    async with site.client("operator") as client:
        for path in (DESCRIPTION, "/v1/areas"):
            answer = await client.get(path)
            assert answer.status_code == 503
            assert "does not describe" in answer.json()["detail"]


async def test_a_refusal_has_one_form(site: Site) -> None:
    site.control.answers["/v1/areas"] = refusal(503, "503 Service Unavailable: the queue is being opened")
    async with site.client("reader") as client:
        answer = await client.get("/v1/areas")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "status": 503,
        "title": "Service Unavailable",
        "detail": "the queue is being opened",
    }


async def test_what_no_route_takes_has_that_form_too(site: Site) -> None:
    async with site.client("reader") as client:
        answer = await client.get("/v1/messages/%0A/none")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_a_method_that_is_not_offered_names_those_that_are(site: Site) -> None:
    async with site.client("operator") as client:
        answer = await client.put("/v1/batch")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


async def test_octets_pass_as_they_are(site: Site) -> None:
    octets = bytes(range(256)) * 100
    site.control.answers["/v1/messages/A/content"] = Answer(
        status=200, content_type="message/rfc822", body=octets
    )
    site.control.answers["/v1/messages"] = said({"spid": "A"})
    async with site.client("operator") as client:
        answer = await client.get("/v1/messages/A/content")
    async with site.client("injector") as client:
        headers = {"Content-Type": "message/rfc822", "idempotency-key": "k", "X-Mqcd-Author": "root"}
        await client.post("/v1/messages", content=octets, headers=headers)
    assert (answer.content, answer.headers["content-type"]) == (octets, "message/rfc822")
    asked = site.asked[-1]
    assert (asked.body, asked.content_type) == (octets, "message/rfc822")
    assert (asked.fields, asked.author) == ({"Idempotency-Key": "k"}, "token:injector")


async def test_a_query_passes_as_it_is(site: Site) -> None:
    async with site.client("reader") as client:
        await client.get("/v1/areas?where=age+%3E+2h%20and%20x&limit=1")
    assert site.asked[-1].target == "/v1/areas?where=age+%3E+2h%20and%20x&limit=1"


async def test_a_body_without_a_length_is_refused(site: Site) -> None:
    async with site.client("operator") as client:
        answer = await client.post("/v1/batch", headers={"Transfer-Encoding": "chunked"})
    assert answer.status_code == 411


async def test_live_events_end_with_the_process(site: Site) -> None:
    following = asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        following.set()
        await asyncio.Event().wait()

    site.control.live["/v1/events"] = events
    async with site.client("reader") as client:
        asked = asyncio.ensure_future(client.get("/v1/events"))
        await following.wait()
        site.ended.set()
        assert (await asked).text == "data: 1\n\n"


async def test_few_may_follow_live_events(site: Site) -> None:
    following, end = asyncio.Event(), asyncio.Event()

    async def events() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        following.set()
        await end.wait()

    site.control.live["/v1/events"] = events
    async with site.client("reader") as client:
        open_ones = []
        for _ in range(MOST_LIVE):
            open_ones.append(asyncio.ensure_future(client.get("/v1/events")))
            await following.wait()
            following.clear()
        assert (await client.get("/v1/events")).status_code == 503
        end.set()
        assert {(await each).text for each in open_ones} == {"data: 1\n\n"}
        assert (await client.get("/v1/events")).status_code == 200
    assert all(question.live for question in site.asked)


async def test_the_role_is_that_of_the_call_that_is_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def older(*_: object) -> Role:
        return Role.READ

    monkeypatch.setattr(Calls, "role_of", older)
    async with site.client("reader") as client:
        answer = await client.post("/v1/batch", json={})
    assert (answer.status_code, site.asked) == (403, [])


@pytest.mark.parametrize("path", ["/v1/count", "/v1/recipients"])
async def test_a_search_has_the_time_it_takes(site: Site, path: str) -> None:
    site.control.answers = {DESCRIPTION: said(describe(TABLE, "1.0")), path: said({}), "/v1/areas": said({})}
    async with site.client("reader") as client:
        await client.get(path)
        await client.get("/v1/areas")
    assert [each.searches for each in site.asked] == [True, False]


@pytest.mark.parametrize(("body", "searches"), [({"dry_run": True}, True), ({"reason": "dry_run"}, False)])
async def test_a_dry_run_counts_as_a_search(site: Site, body: dict[str, Any], searches: bool) -> None:
    async with site.client("operator") as client:
        await client.post("/v1/batch", json=body)
    async with site.client("injector") as client:
        await client.post("/v1/messages", content=b"[" * 60_000)
    assert [(each.searches, each.mail) for each in site.asked] == [(searches, False), (False, True)]
