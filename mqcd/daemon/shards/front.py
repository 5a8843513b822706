"""The front process of several shards: it serves the pages of all of them as those of one server.

Each page asks the server process of every shard, on its own socket, and makes one answer of theirs. A shard
that does not answer makes /readyz and /healthz say so, and is left out of the figures.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from mqcd.core.errors import DecodeError
from mqcd.core.samples import MOST_DESTINATIONS
from mqcd.daemon.control.asking import Asked, ask
from mqcd.daemon.control.batches import BATCH, BATCHES, SAMPLE, name_of, parse_order
from mqcd.daemon.control.retrying import parse_retry
from mqcd.daemon.control.ruling import CANCEL, RULES, fields_in
from mqcd.daemon.shards.division import control_path
from mqcd.net.clock import SystemClock
from mqcd.ops.http.exchange import TEXT
from mqcd.ops.http.pages import JSON, LINES
from mqcd.ops.http.server import Action, Answer, Page, Request, Resource
from mqcd.ops.metrics.merge import Merger
from mqcd.ops.metrics.metrics import OPENMETRICS

log = logging.getLogger("mqcd.daemon")

_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"
_ASK_S = 5.0
"""How long a shard may take to answer a page."""
_ACT_S = 600.0
"""How long it may take to change something."""

_ADDED = ("matched", "changed", "in_flight")
"""Figures of a batch that are those of all shards together."""


class Front:
    """The pages of all shards."""

    def __init__(self, control: Path, shards: Sequence[int]) -> None:
        """`control`: the server's control socket, beside which each shard has its own."""
        self._paths = {shard: control_path(control, shard) for shard in shards}
        self._turn = asyncio.Lock()
        self._merger = Merger()
        self._merging = asyncio.Lock()

    def for_ops(self) -> Mapping[str, Page]:
        """By path."""
        return {"/metrics": self._metrics, "/healthz": self._state, "/readyz": self._state}

    def for_commands(self) -> Mapping[str, Page | Action | Resource]:
        """By path: those of the ops listener too."""
        return {
            **self.for_ops(),
            "/v1/explain": self._explain,
            "/v1/lanes": self._lanes,
            "/v1/destinations": self._destinations,
            "/v1/retry": Action(self._retry),
            BATCH: Action(self._batch),
            BATCHES: self._batches,
            RULES: Resource(self._rules, Action(self._add_rule)),
            CANCEL: Action(self._change_rules),
            "/v1/stuck": self._stuck,
        }

    async def _all(self, target: str) -> dict[int, Asked]:
        asked = [ask(path, "GET", target, b"", _ASK_S) for path in self._paths.values()]
        return dict(zip(self._paths, await asyncio.gather(*asked), strict=True))

    async def _metrics(self, request: Request) -> Answer:
        answers = await self._all("/metrics")
        good = {shard: body.decode() for shard, (status, body) in answers.items() if status == HTTPStatus.OK}
        if not good:
            return _unavailable(answers)
        newer = OPENMETRICS in request.accept
        async with self._merging:
            body = await asyncio.to_thread(self._merger.merge, good, open_metrics=newer)
        return Answer(body=body, content_type=_OPENMETRICS if newer else _EXPOSITION)

    async def _state(self, request: Request) -> Answer:
        answers = await self._all(request.path)
        if all(status == HTTPStatus.OK for status, _ in answers.values()):
            return Answer(body=b"ok\n")
        return _unavailable(answers)

    async def _rows(self, target: str) -> list[dict[str, Any]] | Answer:
        answers = await self._all(target)
        rows: list[dict[str, Any]] = []
        good = [body for status, body in answers.values() if status == HTTPStatus.OK]
        if not good:
            return _unavailable(answers)
        for body in good:
            rows += json.loads(body)
        return rows

    async def _lanes(self, request: Request) -> Answer:
        rows = await self._rows(request.path)
        return rows if isinstance(rows, Answer) else _json(sorted(rows, key=lambda row: -row["waiting"]))

    async def _stuck(self, request: Request) -> Answer:
        rows = await self._rows(request.path)
        return rows if isinstance(rows, Answer) else _json(sorted(rows, key=lambda row: -row["since_ms"]))

    async def _destinations(self, request: Request) -> Answer:
        rows = await self._rows(request.path)
        if isinstance(rows, Answer):
            return rows
        by_name: dict[str, dict[str, Any]] = {}
        for row in rows:
            before = by_name.get(row["destination"])
            by_name[row["destination"]] = row if before is None else _together(before, row)
        return _json(sorted(by_name.values(), key=_badness)[:MOST_DESTINATIONS])

    async def _explain(self, request: Request) -> Answer:
        answers = await self._all(f"{request.path}?{request.query}")
        good = [body for status, body in answers.values() if status == HTTPStatus.OK]
        if not good:
            refused = [body for status, body in answers.values() if status == HTTPStatus.BAD_REQUEST]
            if refused:
                return Answer(status=HTTPStatus.BAD_REQUEST, body=refused[0])
            return _unavailable(answers)
        # Of an address or domain each shard says first where its mail would go: that is the same for all.
        lines = good[0].splitlines()
        general = [line for line in lines[:1] if "suppressed" in json.loads(line)]
        for body in good[1:]:
            lines += body.splitlines()[len(general) :]
        return Answer(body=b"".join(line + b"\n" for line in lines), content_type=LINES)

    async def _retry(self, request: Request) -> Answer:
        """Each shard in turn, as one batch; a limit holds for all."""
        try:
            retry = parse_retry(request.body)
        except DecodeError as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        limit = retry.selection.limit
        batch, matched, changed = None, 0, 0
        retry = replace(retry, batch=secrets.token_hex(8).upper(), uid=request.uid)
        silent: dict[int, Asked] = {}
        async with self._turn:
            for shard, path in self._paths.items():
                left = None if limit is None else limit - matched
                part = replace(retry, selection=replace(retry.selection, limit=left))
                body = json.dumps(part.fields()).encode()
                status, said = await ask(path, "POST", request.path, body, _ACT_S)
                if status != HTTPStatus.OK:
                    silent[shard] = status, said
                    continue
                done = json.loads(said)
                batch = batch or done["batch"]
                matched += done["matched"]
                changed += done["changed"]
        if silent:
            answer = _unavailable(silent)
            others = f"in the other shards {matched} recipients match, and {changed} become due\n"
            return replace(answer, body=answer.body + others.encode())
        return _json({"batch": batch, "matched": matched, "changed": changed})

    async def _batch(self, request: Request) -> Answer:
        """Every shard takes its part of a batch, by one name; all of them carry it out."""
        try:
            fields = json.loads(request.body or b"{}")
            if not isinstance(fields, dict):
                raise DecodeError("expected one JSON object")
            dry_run = fields.pop("dry_run", False) is True
            order = parse_order(fields)
        except (ValueError, RecursionError, DecodeError) as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        if order.selection.limit is not None and len(self._paths) > 1 and not dry_run:
            text = b"a limit over several shards is not offered: say more exactly what is meant\n"
            return Answer(status=HTTPStatus.BAD_REQUEST, body=text)
        at = order.batch.at or SystemClock().now()
        batch = replace(order.batch, id=name_of(order.batch.action, at), at=at, by=f"uid:{request.uid}")
        asked = {**replace(order, batch=batch).fields(), "dry_run": dry_run}
        body = json.dumps(asked).encode()
        answers = [ask(path, "POST", BATCH, body, _ACT_S) for path in self._paths.values()]
        return _as_one(dict(zip(self._paths, await asyncio.gather(*answers), strict=True)))

    async def _batches(self, request: Request) -> Answer:
        return _as_one(await self._all(f"{BATCHES}?{request.query}"))

    async def _rules(self, request: Request) -> Answer:
        """They are the same for all shards; each has its own count of what they did."""
        rows = await self._rows(request.path)
        if isinstance(rows, Answer):
            return rows
        by_id: dict[str, dict[str, Any]] = {}
        for row in rows:
            known = by_id.setdefault(row["id"], {**row, "applied": 0})
            known["applied"] += row["applied"]
        return _json(list(by_id.values()))

    async def _add_rule(self, request: Request) -> Answer:
        try:
            fields = fields_in(request)
        except DecodeError as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        if fields.get("dry_run") is not True:
            return await self._change_rules(request)
        body = json.dumps(fields).encode()
        asked = [ask(path, "POST", RULES, body, _ACT_S) for path in self._paths.values()]
        return _as_one(dict(zip(self._paths, await asyncio.gather(*asked), strict=True)))

    async def _change_rules(self, request: Request) -> Answer:
        """One shard changes the file of all; the others then take it up."""
        try:
            body = json.dumps({**fields_in(request), "by": request.by}).encode()
        except DecodeError as error:
            return Answer(status=HTTPStatus.BAD_REQUEST, body=f"{error}\n".encode())
        silent: dict[int, Asked] = {}
        for shard, path in self._paths.items():
            status, said = await ask(path, "POST", request.path, body, _ACT_S)
            if status in (HTTPStatus.OK, HTTPStatus.BAD_REQUEST):
                await self._all(RULES)
                plain = status == HTTPStatus.BAD_REQUEST
                return Answer(status=HTTPStatus(status), body=said, content_type=TEXT if plain else JSON)
            silent[shard] = status, said
        return _unavailable(silent)


def _as_one(answers: Mapping[int, Asked]) -> Answer:
    """What the shards say of one batch. One that does not answer takes its part up when it is back, if it has
    recorded it."""
    if any(status != HTTPStatus.OK for status, _ in answers.values()):
        return _unavailable({shard: each for shard, each in answers.items() if each[0] != HTTPStatus.OK})
    rows = [json.loads(body) for _, body in answers.values()]
    whole = dict(rows[0])
    whole |= {name: sum(row[name] for row in rows) for name in _ADDED if name in whole}
    if "done" in whole:
        whole["done"] = all(row["done"] for row in rows)
        whole["trouble"] = "; ".join(row["trouble"] for row in rows if row["trouble"])
    if "sample" in whole:
        whole["sample"] = [each for row in rows for each in row["sample"]][:SAMPLE]
    return _json(whole)


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A destination's rows of two shards as one."""
    newer = min((one, other), key=lambda row: (row["reply_ms"] is None, row["reply_ms"] or 0))
    ages = [row["oldest_ms"] for row in (one, other) if row["oldest_ms"] is not None]
    return {
        **one,
        "oldest_ms": max(ages, default=None),
        **{name: one[name] + other[name] for name in ("waiting", "connections", "idle")},
        "suspended": one["suspended"] and other["suspended"],
        "rule": one["rule"] or other["rule"],
        **{name: min(one[name], other[name]) for name in ("probe_in_ms", "rate_in_ms")},
        **{name: newer[name] for name in ("reply", "reply_ms")},
    }


def _badness(row: Mapping[str, Any]) -> tuple[int, int, str]:
    return -(row["oldest_ms"] or 0), -row["waiting"], row["destination"]


def _json(value: object) -> Answer:
    return Answer(body=json.dumps(value, separators=(",", ":")).encode() + b"\n", content_type=JSON)


def _unavailable(answers: Mapping[int, Asked]) -> Answer:
    lines = [
        f"shard {shard}: {line}\n"
        for shard, (status, body) in answers.items()
        if status != HTTPStatus.OK
        for line in body.decode("utf-8", "replace").splitlines() or ["it does not answer"]
    ]
    return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body="".join(lines).encode())
