"""Actions from the page: what is counted, what is ordered, and in whose name."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.fakes.clock import START_MS
from tests.fakes.control import refusal, said
from tests.unit.page.support import Site
from tests.unit.page.ui.answers import SPID, batch, of_server
from tests.unit.page.ui.seen import Seen


async def csrf(client: httpx.AsyncClient) -> str:
    """Of a session that this begins."""
    fields = Seen((await client.get("/act?action=hold&scope=all&where=")).text).all("input")
    return next(each["value"] for each in fields if each["name"] == "csrf")


async def order(site: Site, **fields: str) -> httpx.Response:
    async with site.client() as client:
        return await client.post("/act", data={"csrf": await csrf(client), "now": "5", **fields})


def asked(site: Site, path: str) -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in site.control.asked if each.path == path]


@pytest.mark.parametrize("action", ["hold", "redirect", "reschedule"])
async def test_a_count_changes_nothing(open_site: Site, action: str) -> None:
    open_site.control.answers = of_server("x")
    async with open_site.client() as client:
        answer = await client.get(f"/act/count?action={action}&where=area+%3D+deferred&now=7")
    assert "4 recipients" in answer.text
    [question] = asked(open_site, "/v1/batch")
    assert question == {
        "action": action,
        "selection": {"where": "area = deferred", "now": 7},
        "dry_run": True,
    }


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"action": "retry"}, {}),
        ({"action": "hold"}, {}),
        ({"action": "release"}, {}),
        ({"action": "remove"}, {"report": False}),
        ({"action": "bounce", "report": "Y"}, {"report": True}),
        ({"action": "redirect", "target": "relay.test:25"}, {"target": "relay.test:25"}),
        ({"action": "reschedule", "delay": "1h30m"}, {"until": START_MS + 5_400_000}),
    ],
)
async def test_an_order_is_what_the_form_says(
    open_site: Site, fields: dict[str, str], more: dict[str, Any]
) -> None:
    open_site.control.answers = of_server("x")
    answer = await order(open_site, **fields, where="area = held", reason=" why ")
    assert (answer.status_code, answer.headers["location"]) == (303, "/batches/hold-1")
    selection = {"where": "area = held", "now": 5}
    [sent] = asked(open_site, "/v1/batch")
    assert sent == {"action": fields["action"], "selection": selection, "reason": "why", **more}


@pytest.mark.parametrize(
    "fields", [{"action": "reschedule", "delay": "soon"}, {"action": "redirect", "target": " "}]
)
async def test_a_wrong_field_is_shown_at_its_place(open_site: Site, fields: dict[str, str]) -> None:
    answer = await order(open_site, **fields)
    assert answer.status_code == 400
    assert any("aria-invalid" in each for each in Seen(answer.text).all("input"))
    assert asked(open_site, "/v1/batch") == []


async def test_a_refused_order_keeps_what_was_typed(open_site: Site) -> None:
    open_site.control.answers["/v1/batch"] = refusal(400, "target: expected a host")
    answer = await order(open_site, action="redirect", target="a b", reason="because")
    assert answer.status_code == 400
    assert "target: expected a host" in answer.text
    assert {"a b", "because"} <= {each.get("value") for each in Seen(answer.text).all("input")}


async def test_checked_rows_become_the_condition(open_site: Site) -> None:
    async with open_site.client() as client:
        params = {"action": "hold", "scope": "picked", "where": "area = held", "pick": f"{SPID} a@x.test"}
        answer = await client.get("/act", params=params)
        none = await client.get("/act", params={**params, "pick": []})
    [where] = [each["value"] for each in Seen(answer.text).all("input") if each["name"] == "where"]
    assert where == f"spid = {SPID} and recipient = a@x.test"
    assert none.status_code == 400


async def test_an_unknown_action_is_none(open_site: Site) -> None:
    async with open_site.client() as client:
        assert (await client.get("/act?action=explode")).status_code == 404


async def test_undo_names_its_batch(open_site: Site) -> None:
    open_site.control.answers["/v1/batch"] = said({**batch("x"), "batch": "undo-1"})
    async with open_site.client() as client:
        answer = await client.post("/batches/undo", data={"csrf": await csrf(client), "batch": "hold-1"})
    assert answer.headers["location"] == "/batches/undo-1"
    assert asked(open_site, "/v1/batch")[-1] == {"action": "undo", "target": "hold-1", "selection": {}}


async def test_a_batch_under_way_is_asked_for_again(open_site: Site) -> None:
    async with open_site.client() as client:
        for done in (False, True):
            open_site.control.answers["/v1/batches"] = said(batch("x", done=done))
            [progress] = [
                each
                for each in Seen((await client.get("/batches/hold-1")).text).all("section")
                if each.get("id")
            ]
            assert ("hx-get" in progress) is not done


async def test_who_may_read_sees_no_actions(site: Site) -> None:
    site.control.answers = of_server("x")
    async with site.client("reader") as client:
        rows, message = await client.get("/queue/rows"), await client.get(f"/messages/{SPID}")
        answer = await client.post("/act", data={"action": "hold"})
    assert "/act" not in {each.get("formaction", "") for each in Seen(rows.text).all("button")}
    assert Seen(rows.text).all("button") == Seen(message.text).all("button")[1:] == []
    assert answer.status_code == 403


async def test_an_order_has_its_author(site: Site) -> None:
    site.control.answers = of_server("x")
    async with site.client("operator") as client:
        await client.post("/act", data={"action": "hold", "where": ""})
    assert [each.author for each in site.control.asked if each.path == "/v1/batch"] == ["token:operator"]
