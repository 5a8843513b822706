"""The event log's JSON Schema: it fits the code, the document, and nothing but events."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mqcd.core.events import BEST_EFFORT, SCHEMA_VERSION, TRANSITIONS, Verb, site_of
from mqcd.core.model import Origin, Phase
from mqcd.core.smtp.classes import OutcomeClass
from tests.contract.schema import FIELDS, PAGE, SCHEMA, VERBS, allowed, page, problems

INTERFACE = (
    *("v", "id", "event", "at", "spid", "qid", "sender", "recipient", "domain", "site", "zone", "size"),
    *("recipients", "origin", "listener", "client", "user", "tls", "attempt", "destination", "remote_host"),
    *("remote_addr", "source_addr", "code", "status", "reply", "phase", "class", "connect_ms", "attempt_ms"),
    *("queued_ms", "due"),
)
"""Names that readers rely on. This list only grows."""

HEAD = {"v": 1, "id": "node/0/7", "event": "attempted", "at": "2026-01-01T00:00:00.000Z"}
EVENT: dict[str, Any] = {**HEAD, "spid": "0123456789ABCDEF", "qid": 1, "attempt": 1}
REFUSED: dict[str, Any] = {**HEAD, "id": "node/0/b12-1", "event": "refused", "reason": "relay", "code": 550}
REFUSED |= {"class": "policy"}


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert SCHEMA["additionalProperties"] is False


def test_it_knows_what_the_code_knows() -> None:
    assert FIELDS["v"]["const"] == SCHEMA_VERSION
    assert FIELDS["event"]["enum"] == list(VERBS) == [each.value for each in Verb]
    assert FIELDS["class"]["enum"] == [each.value for each in OutcomeClass]
    assert FIELDS["phase"]["enum"] == [each.value for each in Phase]
    assert FIELDS["origin"]["enum"] == [each.value for each in Origin]
    assert frozenset(Verb) - TRANSITIONS == BEST_EFFORT
    for verb in VERBS:
        assert {"if": {"properties": {"event": {"const": verb}}}, "then": {"$ref": f"#/$defs/{verb}"}} in (
            SCHEMA["allOf"]
        )


def test_it_has_every_name_of_the_interface() -> None:
    assert set(INTERFACE) <= set(FIELDS)


def test_every_field_belongs_to_a_verb() -> None:
    for verb, each in VERBS.items():
        assert set(SCHEMA["required"]) <= set(each["required"]) <= set(allowed(verb)) <= set(FIELDS)
    assert {name for verb in VERBS for name in allowed(verb)} == set(FIELDS)


def test_what_an_acceptance_says_of_its_record_other_events_may_say() -> None:
    of_record = set(allowed("accepted")) - {"recipients", "session", "message_id"}
    assert [
        verb
        for verb, each in VERBS.items()
        if "sender" in each["required"] and of_record - set(allowed(verb))
    ] == []


def test_the_document_says_what_the_schema_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.contract.schema"


@pytest.mark.parametrize("event", [EVENT, REFUSED])
def test_events_fit(event: dict[str, Any]) -> None:
    assert problems(event) == []


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "green"},
        {"recipients": 2},
        {"v": 2},
        {"id": "node/0"},
        {"id": "node/0/b12-1"},
        {"event": "vanished"},
        {"at": "2026-01-01 00:00:00"},
        {"spid": "0123456789abcdef"},
        {"qid": 0},
        {"attempt": "1"},
        {"site": ""},
    ],
)
def test_what_is_no_event_does_not(change: dict[str, Any]) -> None:
    assert problems({**EVENT, **change})


@pytest.mark.parametrize("name", EVENT)
def test_a_field_that_is_missing_is_missed(name: str) -> None:
    assert problems({key: value for key, value in EVENT.items() if key != name})


def test_best_effort_events_have_ids_of_their_own() -> None:
    assert problems({**REFUSED, "id": "node/0/7"})


@pytest.mark.parametrize(
    ("destination", "site"),
    [
        ("mx.example.org", "mx.example.org"),
        ("mx.example.org+2-0123abcd", "mx.example.org+2-0123abcd"),
        ("mx.example.org+2-0123abcd/example.org", "mx.example.org+2-0123abcd"),
        ("[192.0.2.1]", "[192.0.2.1]"),
        ("[IPv6:2001:db8::1]", "[IPv6:2001:db8::1]"),
        ("relay.example.org:25", ""),
        ("relay.example.org:587 as joe@example.org", ""),
        ("[2001:db8::1]:25", ""),
        ("", ""),
    ],
)
def test_the_site_in_a_destinations_name(destination: str, site: str) -> None:
    assert site_of(destination) == site
