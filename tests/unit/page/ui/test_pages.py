"""Destinations, rules, advice, server and settings: what each shows and asks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mqcd.advice.desk import Desk
from mqcd.config.advice import Advice, Shaping, Suppression, document
from tests.fakes.control import refusal, said
from tests.unit.page.support import Site
from tests.unit.page.ui.answers import destination, of_server, rule, text
from tests.unit.page.ui.queue.test_acting import csrf
from tests.unit.page.ui.seen import Seen

UNTIL = 1_900_000_000_000


def asked(site: Site, path: str) -> list[dict[str, Any]]:
    return [
        json.loads(each.body) for each in site.control.asked if each.path == path and each.method == "POST"
    ]


async def test_an_address_that_names_nothing_has_a_way_back(open_site: Site) -> None:
    async with open_site.client() as client:
        page, call, static = [await client.get(path) for path in ("/nosuch", "/v1/nosuch", "/static/nosuch")]
    assert [each.status_code for each in (page, call, static)] == [404, 404, 404]
    assert "There is no such page." in page.text
    assert 'href="/"' in page.text
    assert call.headers["content-type"] == "application/problem+json"
    assert static.text == "Not Found\n"


async def test_what_no_form_has_is_refused(open_site: Site) -> None:
    """More fields, and more digits, than Python reads."""
    open_site.control.answers["/v1/rules"] = refusal(400, "connections: expected a number")
    async with open_site.client() as client:
        many = await client.get("/queue?" + "&".join(["a"] * 5001))
        long = await client.post(
            "/rules", data={"action": "slow", "connections": "9" * 5000, "csrf": await csrf(client)}
        )
    assert (many.status_code, many.text) == (400, "more than 5000 fields\n")
    assert long.status_code == 400


async def test_destinations_are_sorted_as_asked(open_site: Site) -> None:
    rows = [destination("b.test", waiting=1, suspended=False), destination("a.test", waiting=9)]
    open_site.control.answers["/v1/destinations"] = said(rows)
    order = {"destination": "ab", "waiting": "ab", "waiting&backwards=Y": "ba", "": "ba", "nonsense": "ba"}
    async with open_site.client() as client:
        for sort, names in order.items():
            words = Seen((await client.get(f"/destinations/rows?sort={sort}")).text).words
            assert (words.index("a.test") < words.index("b.test")) is (names == "ab"), sort


async def test_a_dead_destination_says_why(open_site: Site) -> None:
    open_site.control.answers["/v1/destinations"] = said([destination("a.test")])
    async with open_site.client() as client:
        words = Seen((await client.get("/destinations")).text).words
    assert "dead" in words
    assert "next probe in 5s" in words


async def test_a_suspending_rule_shows_at_once(open_site: Site) -> None:
    open_site.control.answers["/v1/destinations"] = said([destination("a.test", suspended=False)])
    open_site.control.answers["/v1/rules"] = said([rule("x", id="suspend-1", where="site = a.test")])
    async with open_site.client() as client:
        seen = Seen((await client.get("/destinations")).text)
    assert "a rule suspends it" in seen.words
    assert {"type": "hidden", "name": "id", "value": "suspend-1"} in seen.all("input")


async def test_no_destinations_is_said(open_site: Site) -> None:
    open_site.control.answers["/v1/destinations"] = said([])
    async with open_site.client() as client:
        assert "No mail waits" in (await client.get("/destinations")).text


async def test_suspending_makes_a_rule(open_site: Site) -> None:
    open_site.control.answers = of_server("x")
    async with open_site.client() as client:
        data = {"csrf": await csrf(client), "name": 'mx "1".test', "for": "2h", "reason": "asked"}
        answer = await client.post("/destinations/suspend", data=data)
    assert answer.headers["location"] == "/destinations"
    where = 'site = "mx \\"1\\".test"'
    assert asked(open_site, "/v1/rules") == [
        {"action": "suspend", "where": where, "for": "2h", "reason": "asked"}
    ]


async def test_a_rule_is_counted_before_it_is_added(open_site: Site) -> None:
    open_site.control.answers["/v1/rules"] = said({"rule": None, "matched": 3, "sample": []})
    form = {"action": "slow", "where": "domain = x", "connections": "2", "rate": ""}
    async with open_site.client() as client:
        token = await csrf(client)
        counted = await client.post("/rules", data={**form, "csrf": token, "do": "count"})
        added = await client.post("/rules", data={**form, "csrf": token, "do": "add"})
    assert "3 recipients" in counted.text
    assert added.status_code == 303
    wanted = {"action": "slow", "where": "domain = x", "connections": 2}
    assert asked(open_site, "/v1/rules") == [{**wanted, "dry_run": True}, wanted]


async def test_a_refused_rule_keeps_what_was_typed(open_site: Site) -> None:
    open_site.control.answers["/v1/rules"] = refusal(400, "rate: expected a rate")
    async with open_site.client() as client:
        data = {"csrf": await csrf(client), "action": "slow", "where": "domain = x", "rate": "fast"}
        answer = await client.post("/rules", data=data)
    assert answer.status_code == 400
    assert "rate: expected a rate" in answer.text
    assert "fast" in {each.get("value") for each in Seen(answer.text).all("input")}


async def test_what_a_cancelled_rule_leaves_is_said(open_site: Site) -> None:
    left = {"stays": "held", "undo": "mqcd queue undo hold-1"}
    open_site.control.answers["/v1/rules/cancel"] = said({"id": "hold-1", **left})
    async with open_site.client() as client:
        answer = await client.post("/rules/cancel", data={"csrf": await csrf(client), "id": "hold-1"})
    assert "mqcd queue undo hold-1" in answer.text


@pytest.mark.parametrize("back", ["https://evil.test", "//evil.test", "/v1/areas"])
async def test_a_form_leads_nowhere_else(open_site: Site, back: str) -> None:
    open_site.control.answers["/v1/rules/cancel"] = said({"id": "x", "undo": None, "stays": None})
    async with open_site.client() as client:
        answer = await client.post(
            "/rules/cancel", data={"csrf": await csrf(client), "id": "x", "back": back}
        )
    assert answer.headers["location"] == "/rules"


async def test_advice_that_waits_is_told_from_that_in_effect(open_site: Site) -> None:
    known: dict[str, Any] = {"reason": "refused", "since": 1, "until": UNTIL}
    dead = Suppression(id="s-1", recipient="dead@x.test", **known)
    shape = Shaping(id="d-1", match="mx.test", maxserverconnections=3, **known)
    directory = open_site.directory / "advice"
    directory.mkdir()
    files = {
        "proposed.xml": Advice(suppressions={"dead@x.test": dead}, shapings=(shape,)),
        "active.xml": Advice(shapings=(shape,)),
    }
    for name, advice in files.items():
        (directory / name).write_bytes(b"".join(document(advice)))
    async with open_site.client() as client:
        words = Seen((await client.get("/advice")).text).words
    waits, active = words.split("In effect: 1")
    assert "dead@x.test" in waits
    assert "mx.test" not in waits
    assert "at most 3 connections" in active


def proposed(site: Site) -> Path:
    """The directory of two proposed pieces."""
    known: dict[str, Any] = {"reason": "refused", "since": 1, "until": UNTIL}
    dead = Suppression(id="s-1", recipient="dead@x.test", **known)
    shape = Shaping(id="d-1", match="mx.test", maxserverconnections=3, **known)
    directory = site.directory / "advice"
    directory.mkdir()
    advice = Advice(suppressions={"dead@x.test": dead}, shapings=(shape,))
    (directory / "proposed.xml").write_bytes(b"".join(document(advice)))
    return directory


@pytest.mark.parametrize(
    ("decision", "active", "cancelled"),
    [
        ({"accept": "s-1"}, {"s-1"}, set()),
        ({"dismiss": "d-1"}, set(), {"d-1"}),
        ({"all": "Y"}, {"s-1", "d-1"}, set()),
    ],
)
async def test_advice_is_decided_on(
    open_site: Site,
    caplog: pytest.LogCaptureFixture,
    decision: dict[str, str],
    active: set[str],
    cancelled: set[str],
) -> None:
    directory = proposed(open_site)
    caplog.set_level("INFO", "mqcd.page")
    async with open_site.client() as client:
        data = {"csrf": await csrf(client), "reason": "they asked", **decision}
        answer = await client.post("/advice", data=data)
    assert answer.headers["location"] == "/advice"
    desk = Desk(directory, 0)
    assert {piece.id for piece in desk.read("active").pieces()} == active
    assert {piece.id for piece in desk.read("cancelled").pieces()} == cancelled
    assert "by page: they asked" in caplog.text


async def test_advice_that_is_gone_is_said(open_site: Site) -> None:
    proposed(open_site)
    async with open_site.client() as client:
        data = {"csrf": await csrf(client), "accept": "s-2"}
        answer = await client.post("/advice", data=data)
    assert (answer.status_code, "s-2" in answer.text) == (409, True)


@pytest.mark.parametrize("decision", [{}, {"accept": ""}, {"dismiss": " "}, {"all": ""}])
async def test_no_decision_puts_nothing_in_effect(open_site: Site, decision: dict[str, str]) -> None:
    directory = proposed(open_site)
    async with open_site.client() as client:
        answer = await client.post("/advice", data={"csrf": await csrf(client), **decision})
    assert (answer.status_code, list(Desk(directory, 0).read("active").pieces())) == (400, [])


async def test_readers_decide_nothing_on_advice(site: Site) -> None:
    proposed(site)
    async with site.client("reader") as client:
        buttons = Seen((await client.get("/advice")).text).all("button")
        assert not [each for each in buttons if "name" in each]
        assert (await client.post("/advice", data={"all": "Y"})).status_code == 403


async def test_advice_that_cannot_be_read_is_said(open_site: Site) -> None:
    directory = open_site.directory / "advice"
    directory.mkdir()
    (directory / "active.xml").write_text("<advice")
    async with open_site.client() as client:
        assert "cannot be read" in (await client.get("/advice")).text


async def test_a_switch_asks_with_its_reason(open_site: Site) -> None:
    open_site.control.answers["/v1/pause"] = said({})
    async with open_site.client() as client:
        data = {"csrf": await csrf(client), "part": "deliver", "paused": "Y", "reason": "disk"}
        answer = await client.post("/server/pause", data=data)
    assert answer.headers["location"] == "/server"
    assert asked(open_site, "/v1/pause") == [{"part": "deliver", "paused": True, "reason": "disk"}]


async def test_an_older_server_is_said_to_be_that(open_site: Site) -> None:
    open_site.control.answers = {"/readyz": text("ok")}
    paths = ("/queue/rows", "/batches", "/rules", "/settings", "/server/connections", "/server/state")
    async with open_site.client() as client:
        for path in paths:
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert "no such page" not in answer.text, path


async def test_settings_are_searched(open_site: Site) -> None:
    rows = [
        {"path": "mta/queue/grace", "value": "2h", "default": "1h", "line": 4, "gloss": "time"},
        {"path": "ops@port", "value": "9125", "default": "9125", "line": None, "gloss": "TCP port"},
    ]
    open_site.control.answers["/v1/settings"] = said(rows)
    async with open_site.client() as client:
        for query, found in {"": 2, "?changed=Y": 1, "?find=tcp": 1, "?find=nothing": 0}.items():
            shown = (await client.get(f"/settings{query}")).text
            assert ("mta/queue/grace" in shown) + ("ops@port" in shown) == found, query


@pytest.mark.parametrize(
    "path", ["/queue/rows", "/destinations", "/rules", "/batches", "/settings", "/server/state"]
)
async def test_no_server_is_no_empty_list(open_site: Site, path: str) -> None:
    open_site.control.down = "no server runs at var/control.sock"
    async with open_site.client() as client:
        answer = await client.get(path)
    assert "no server runs at var/control.sock" in answer.text
    assert Seen(answer.text).all("table") == []


async def test_a_trace_is_for_operators(site: Site) -> None:
    async with site.client("reader") as reader, site.client("operator") as operator:
        address = "/events/trace?q=%22%3E%3Cscript%3E"
        assert "needs a token with the role operate" in (await reader.get(address)).text
        seen = Seen((await operator.get(address)).text)
    assert seen.runs == []
    [body] = [each for each in seen.all("tbody") if each.get("id") == "live"]
    assert body["data-stream"] == "/v1/trace?q=%22%3E%3Cscript%3E"
