"""`queue retry` on a running server: what it makes due, what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.cli import main
from mqcd.core.errors import DecodeError
from mqcd.core.events import Verb
from mqcd.core.model import Area
from mqcd.core.ports import Expedited, QueueStore
from mqcd.core.selecting.selection import Selection
from mqcd.core.selecting.where import parse_where
from mqcd.daemon.control.retrying import MOST_REASON, Retry, Retrying, parse_retry
from mqcd.deliver.service import Deliverer
from mqcd.ops.http.server import Request
from tests.fakes.clock import FakeClock
from tests.unit.daemon.support import Running, running

NOT_NOW = "*@slow.example=450 4.2.1 not now"


async def retry(house: Running, *words: str) -> int:
    return await asyncio.to_thread(main, ["-c", str(house.conf), "queue", "retry", *words])


async def test_what_waits_is_tried_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, rules=[NOT_NOW]) as house:
        await house.send("a@slow.example")
        await house.heard(Verb.DEFERRED)
        assert await retry(house, "--json", "--domain", "*.example", "--reason", "they are back") == 0
        done = json.loads(capfd.readouterr().out)
        assert (done["matched"], done["changed"]) == (1, 1)
        while house.observer.count(Verb.DEFERRED) < 2:
            house.observer.news.clear()
            await house.observer.news.wait()
        [line] = [line for line in house.log.getvalue().splitlines() if "event=retry" in line]
        told = (
            f"batch={done['batch']}",
            f"by=uid:{os.getuid()}",
            "domain=*.example",
            'reason="they are back"',
        )
        assert all(each in line for each in told)


async def test_a_dry_run_and_no_match_try_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, rules=[NOT_NOW]) as house:
        # What the server has logged at its start.
        capfd.readouterr()
        assert await retry(house) == 0
        assert capfd.readouterr().err == "nothing waits\n"
        await house.send("a@slow.example")
        await house.heard(Verb.DEFERRED)
        assert await retry(house, "--json", "--dry-run") == 0
        assert json.loads(capfd.readouterr().out) == {"batch": None, "matched": 1, "changed": 0}
        assert await retry(house, "--sender", "other@*") == 0
        assert capfd.readouterr().err == "nothing matches\n"
        assert "event=retry" not in house.log.getvalue()
        assert house.observer.count(Verb.ATTEMPTED) == 1


class GrowingStore:
    """Has more mail whenever it is asked."""

    async def expedite(self, selection: Selection, dry_run: bool = False) -> Expedited:
        return Expedited(matched=1 if dry_run else 3, changed=1 if dry_run else 2, domains=None)


class NoDeliverer:
    def probe(self, domains: object) -> None:
        """Nothing is suspended."""


async def test_it_counts_what_it_did_not_what_it_foresaw() -> None:
    told: list[Mapping[str, str | int]] = []

    def tell(event: str, **fields: str | int) -> None:
        told.append(fields)

    store, deliverer = cast("QueueStore", GrowingStore()), cast("Deliverer", NoDeliverer())
    retrying = Retrying(store, deliverer, FakeClock(), tell)
    done = json.loads((await retrying.page(Request(method="POST", path="/v1/retry"))).body)
    assert (done["matched"], done["changed"]) == (told[0]["matched"], told[0]["changed"]) == (3, 2)


async def test_without_a_server_it_is_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as house:
        pass
    assert await retry(house) == 1
    assert "no server runs at" in capfd.readouterr().err


@pytest.mark.parametrize(
    "asked",
    [
        Retry(selection=Selection()),
        Retry(
            selection=Selection(
                area=Area.DEFERRED,
                spid=0x0123456789ABCDE0,
                sender="",
                recipient="a@*",
                domain="b.example",
                received_before=5,
                where=parse_where("age > 2h and not (sender = 'a b' or area = held)", 7),
                limit=7,
            ),
            dry_run=True,
            reason="why",
        ),
    ],
)
def test_a_request_survives_its_way(asked: Retry) -> None:
    assert parse_retry(json.dumps(asked.fields()).encode()) == asked


def test_a_reason_is_cut_and_printable() -> None:
    assert "\n" not in parse_retry(b'{"reason":"a\\nb"}').reason
    assert len(parse_retry(json.dumps({"reason": "x" * 999}).encode()).reason) == MOST_REASON


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{",
        b"\xff",
        b'{"domian":"x"}',
        b'{"limit":true}',
        b'{"limit":-1}',
        b'{"area":"nowhere"}',
        b'{"spid":"12"}',
        b'{"sender":null}',
        b'{"where":"area = held"}',
        b'{"now":5}',
        b'{"where":"area = there","now":5}',
        b'{"where":"area = held","now":"5"}',
        b"[" * 50_000,
    ],
)
def test_what_is_not_understood_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_retry(body)


NAMES = st.sampled_from(["area", "spid", "sender", "limit", "dry_run", "reason", "x"])
VALUES = st.none() | st.booleans() | st.integers() | st.text()


@given(VALUES | st.dictionaries(NAMES, VALUES))
def test_any_json_is_a_request_or_a_decode_error(value: object) -> None:
    with suppress(DecodeError):
        assert isinstance(parse_retry(json.dumps(value).encode()), Retry)


async def test_nonsense_gets_400(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        status, text = await asyncio.to_thread(house.control.post, "/v1/retry", {"domian": "x"}, 30)
        assert (status, text) == (400, "no such field: domian\n")
        assert (await house.get("/v1/retry"))[0] == 405


@pytest.mark.parametrize(("peer", "logged"), [(os.geteuid(), "uid:4711"), (4712, "uid:4712")])
async def test_the_front_process_names_who_asked_it(peer: int, logged: str) -> None:
    logged_fields: list[Mapping[str, str | int]] = []

    def log_event(event: str, **fields: str | int) -> None:
        logged_fields.append(fields)

    store, deliverer = cast(QueueStore, GrowingStore()), cast(Deliverer, NoDeliverer())
    retrying = Retrying(store, deliverer, FakeClock(), log_event)
    body = json.dumps(Retry(selection=Selection()).fields()).encode()
    await retrying.page(Request(method="POST", path="/v1/retry", body=body, uid=peer, author="uid:4711"))
    assert [fields["by"] for fields in logged_fields] == [logged]
