"""Whatever strangers write into mail, replies and names is shown, and nothing of it runs."""

from __future__ import annotations

import pytest

from tests.fakes.control import refusal, said
from tests.unit.page.support import Site
from tests.unit.page.ui.answers import SPID, batch, of_server
from tests.unit.page.ui.seen import Seen

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}</style><style>*{display:none}",
    "javascript:alert(1)",
)
PAGES = (
    "/",
    "/overview",
    "/overview/ages",
    "/server/drain",
    "/queue?where={}&wait=1",
    "/queue?where=spid+%3D+{}&wait=1",
    "/queue/rows?where={}",
    "/queue/count?where={}",
    "/act?action=hold&scope=all&where={}&wait=1",
    "/act?action=redirect&scope=all&where=area+%3D+held&target={}&reason={}&wait=1",
    "/act/count?action=hold&where={}",
    "/batches",
    "/batches/{}",
    f"/messages/{SPID}",
    f"/messages/{SPID}/why",
    "/messages/{}",
    "/destinations",
    "/destinations/rows?sort={}",
    "/destinations/suspend?name={}",
    "/rules?where={}&reason={}&action={}",
    "/events?verb={}&domain={}",
    "/server/state",
    "/server/connections",
    "/settings?find={}",
    "/advice",
)


@pytest.mark.parametrize("word", HOSTILE)
async def test_hostile_text_is_only_shown(open_site: Site, word: str) -> None:
    open_site.control.answers = of_server(word)
    async with open_site.client() as client:
        for page in PAGES:
            path, _, query = page.partition("?")
            pairs = [each.partition("=")[::2] for each in query.split("&") if each]
            params: list[tuple[str, str | int | float | bool | None]] = [
                (name, value.replace("+", " ").replace("%3D", "=").format(word)) for name, value in pairs
            ]
            open_site.control.answers["/v1/batches"] = said(
                [batch(word)] if page == "/batches" else batch(word)
            )
            answer = await client.get(path.format(word.replace("/", "")), params=params)
            assert answer.status_code < 500, page
            assert Seen(answer.text).runs == [], page


@pytest.mark.parametrize("word", HOSTILE)
async def test_hostile_refusals_are_only_shown(open_site: Site, word: str) -> None:
    open_site.control.answers = dict.fromkeys(of_server(""), refusal(400, word))
    async with open_site.client() as client:
        for page in PAGES:
            answer = await client.get(page.replace("{}", "x"))
            assert Seen(answer.text).runs == [], page
