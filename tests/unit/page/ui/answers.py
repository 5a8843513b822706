"""What a server answers, whole, with one text wherever a stranger may have written it."""

from __future__ import annotations

import json
from typing import Any

from mqcd.page.client import Answer
from tests.fakes.control import said

SPID = "1956FFCEA7800004"
AT = "2027-01-15T07:00:00.000Z"
METRICS = """\
mqcd_build_info{version="9"} 1
mqcd_queue_recipients{area="incoming"} 3
mqcd_queue_recipients{area="deferred"} 4
mqcd_oldest_recipient_age_seconds{area="deferred"} 90
mqcd_disk_free_bytes{root="queue"} 1e9
"""


def text(body: str, status: int = 200) -> Answer:
    return Answer(status=status, content_type="text/plain", body=body.encode())


def recipient(word: str) -> dict[str, Any]:
    return {
        "spid": SPID,
        "qid": 1,
        "area": "deferred",
        "inflight": False,
        "sender": word,
        "recipient": f"{word}@x",
        "received": AT,
        "due": AT,
        "attempts": 2,
        "size": 1234,
        "status": word,
        "reply": f"450 {word}",
    }


def destination(word: str, **more: Any) -> dict[str, Any]:
    return {
        "destination": word,
        "oldest_ms": 90_000,
        "waiting": 4,
        "connections": 1,
        "idle": 0,
        "suspended": True,
        "probe_in_ms": 5000,
        "rate_in_ms": 0,
        "reply": f"451 {word}",
        "reply_ms": 100,
        **more,
    }


def batch(word: str, **more: Any) -> dict[str, Any]:
    return {
        "batch": "hold-1",
        "action": "hold",
        "at": AT,
        "by": word,
        "reason": word,
        "selection": {"where": word},
        "matched": 5,
        "changed": 4,
        "in_flight": 1,
        "done": True,
        "trouble": word,
        "undo": True,
        "undo_until": None,
        **more,
    }


def rule(word: str, **more: Any) -> dict[str, Any]:
    return {
        "id": word,
        "action": "suspend",
        "where": word,
        "name": word,
        "reason": word,
        "by": word,
        "at": AT,
        "until": AT,
        "rate": word,
        "connections": 3,
        "report": None,
        "applied": 2,
        **more,
    }


def of_server(word: str) -> dict[str, Answer]:
    """By path."""
    row = recipient(word)
    sample = [{"spid": SPID, "qid": 1, "area": "deferred", "sender": word, "recipient": word}]
    event = {
        "event": "deferred",
        "at": AT,
        "spid": SPID,
        "qid": 1,
        "reply": word,
        "remote_host": word,
        word: word,
    }
    return {
        "/readyz": text("ok\n"),
        "/metrics": text(METRICS),
        "/v1/areas": said([{"area": "removed", "recipients": 2, "bytes": 9, "oldest": AT}]),
        "/v1/destinations": said([destination(word)]),
        "/v1/state": said(
            {
                "parts": [{"part": word, "paused": True, "by": word, "since": AT, "reason": word}],
                "waiting": 3,
                "drained": False,
            }
        ),
        "/v1/recipients": said({"rows": [row, row], "next": word, "left_out": [word]}),
        "/v1/count": said({"recipients": 7, "bytes": 9, "oldest": None}),
        f"/v1/messages/{SPID}": said(
            {
                "envelope": {"sender": word, "client": word, "received": AT, "size": 3},
                "recipients": [row],
                "headers": [[word, word]],
                "history": [event],
                "unread": [word],
            }
        ),
        "/v1/explain": text(
            json.dumps({"recipient": word, "waiting_for": word, "limits": {word: word}}) + "\n"
        ),
        "/v1/batch": said({**batch(word), "sample": sample}),
        "/v1/batches": said([batch(word)]),
        "/v1/rules": said([rule(word)]),
        "/v1/connections": said(
            [
                {
                    "side": "in",
                    "client": word,
                    "user": word,
                    "listener": word,
                    "tls": word,
                    "state": word,
                    "since_ms": 5,
                    "messages": 1,
                },
                {
                    "side": "out",
                    "destination": word,
                    "remote_host": word,
                    "remote_addr": word,
                    "tls": "",
                    "state": word,
                    "since_ms": 5,
                    "messages": 1,
                },
            ]
        ),
        "/v1/settings": said([{"path": word, "value": word, "default": "", "line": 3, "gloss": word}]),
        "/v1/loglevel": said({"level": "info", "until": AT}),
        "/v1/stuck": said([{"kind": word, "name": word, "since_ms": 5, "recipients": 1}]),
    }
