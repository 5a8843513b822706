"""The event log's JSON Schema, held against events; and the tables of docs/events.md that are made of it.

    python -m tests.contract.schema

writes the tables anew.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from mqcd.core.events import SCHEMA_FILE

SCHEMA: dict[str, Any] = json.loads(files("mqcd.core").joinpath(SCHEMA_FILE).read_text())
FIELDS: dict[str, dict[str, Any]] = SCHEMA["properties"]
VERBS: dict[str, dict[str, Any]] = SCHEMA["$defs"]
PAGE = Path(__file__).parents[2] / "docs" / "events.md"

_validator = Draft202012Validator(SCHEMA)
_ALL, _THEN = 100, 100
_looked: Counter[tuple[str, frozenset[str]]] = Counter()


def problems(event: dict[str, Any]) -> list[str]:
    """What is wrong with an event; nothing, as a rule."""
    return [f"{error.json_path}: {error.message}" for error in _validator.iter_errors(event)]


def check(events: Iterable[dict[str, Any]]) -> None:
    """Of each verb and set of fields the first hundred events fit the schema, then one in a hundred."""
    for event in events:
        kind = event.get("event", ""), frozenset(event)
        number = _looked[kind]
        _looked[kind] += 1
        if number < _ALL or number % _THEN == 0:
            assert problems(event) == [], event


def allowed(verb: str) -> list[str]:
    """The fields that a verb may have."""
    names: list[str] = VERBS[verb]["propertyNames"]["enum"]
    return names


def verbs_table() -> str:
    """One row for each verb."""
    rows = ["| verb | since | meaning | always has | may have |", "|---|--:|---|---|---|"]
    for verb, each in VERBS.items():
        always = [name for name in each["required"] if name not in SCHEMA["required"]]
        perhaps = [name for name in allowed(verb) if name not in each["required"]]
        rows.append(
            f"| `{verb}` | {each['x-since']} | {each['description']} | {_names(always)} | {_names(perhaps)} |"
        )
    return "\n".join(rows)


def fields_table() -> str:
    """One row for each field."""
    rows = ["| field | since | type | unit | meaning |", "|---|--:|---|---|---|"]
    for name, each in FIELDS.items():
        meaning = each["description"]
        if "enum" in each and name != "event":
            meaning += f" One of {', '.join(each['enum'])}."
        rows.append(
            f"| `{name}` | {each['x-since']} | {each['type']} | {each.get('x-unit', '')} | {meaning} |"
        )
    return "\n".join(rows)


def _names(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def page() -> str:
    """docs/events.md with its tables as they must be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("verbs", verbs_table()), ("fields", fields_table())):
        between = re.compile(rf"(?<=<!-- {name} -->\n).*(?=\n<!-- end of {name} -->)", re.DOTALL)
        before, after = between.split(text)
        text = f"{before}\n{table}\n{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
