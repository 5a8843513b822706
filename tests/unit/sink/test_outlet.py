"""What is stored is what came, the index names it, and what is shown is one line for each."""

import json
from pathlib import Path

import pytest

from mqcd.sink.outlet import INDEX, MessageStore, Outlet
from mqcd.sink.outputs import Received, Refused

MESSAGE = Received(
    sender="ä@example.org",
    recipients=("b@example.com", "c@example.com"),
    content=b".\r\n\x00\xff bare\n and no end",
    helo="client.example",
    peer="127.0.0.1:4711",
    at_ms=1_700_000_000_007,
)
FIELDS = {
    "sender": "ä@example.org",
    "recipients": ["b@example.com", "c@example.com"],
    "size": 22,
    "at": "2023-11-14T22:13:20.007Z",
    "helo": "client.example",
}
REFUSED = Refused(
    sender="",
    recipient="b\x1b[2J@example.com",
    reply="550 no",
    helo="client.example",
    peer="127.0.0.1:4711",
    at_ms=0,
)


def index_of(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / INDEX).read_text("ascii").splitlines()]


def test_a_message_is_stored_octet_for_octet(tmp_path: Path) -> None:
    store = MessageStore(tmp_path / "new" / "dir")
    name = store.keep(MESSAGE)
    store.close()
    assert (tmp_path / "new" / "dir" / name).read_bytes() == MESSAGE.content
    assert name.endswith(".eml")
    assert index_of(tmp_path / "new" / "dir") == [{"file": name, **FIELDS}]


def test_a_second_run_at_the_same_time_overwrites_nothing(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        store = MessageStore(tmp_path)
        names += [store.keep(MESSAGE), store.keep(MESSAGE)]
        store.close()
    assert len(set(names)) == 4
    assert [line["file"] for line in index_of(tmp_path)] == names


def test_a_store_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        MessageStore(tmp_path / "file")


def test_json_is_one_object_a_line(tmp_path: Path) -> None:
    shown: list[str] = []
    store = MessageStore(tmp_path)
    outlet = Outlet(store=store, show=shown.append, as_json=True)
    outlet.received(MESSAGE)
    outlet.refused(REFUSED)
    store.close()
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in shown)
    [stored] = index_of(tmp_path)
    assert [json.loads(line) for line in shown] == [
        {"event": "message", **stored},
        {
            "event": "refused",
            "sender": "",
            "recipient": "b\x1b[2J@example.com",
            "reply": "550 no",
            "at": "1970-01-01T00:00:00.000Z",
            "helo": "client.example",
        },
    ]


def test_without_a_store_the_file_is_null() -> None:
    shown: list[str] = []
    Outlet(show=shown.append, as_json=True).received(MESSAGE)
    assert json.loads(shown[0]) == {"event": "message", "file": None, **FIELDS}


def test_progress_lines_cannot_drive_a_terminal() -> None:
    shown: list[str] = []
    outlet = Outlet(show=shown.append)
    outlet.received(MESSAGE)
    outlet.refused(REFUSED)
    assert shown == [
        "2023-11-14T22:13:20.007Z took 22 octets from <ä@example.org> to <b@example.com> <c@example.com>\n",
        "1970-01-01T00:00:00.000Z refused <b?[2J@example.com> from <>: 550 no\n",
    ]


def test_what_cannot_be_stored_is_not_told(tmp_path: Path) -> None:
    shown: list[str] = []
    store = MessageStore(tmp_path / "dir")
    (tmp_path / "dir" / INDEX).unlink()
    (tmp_path / "dir").rmdir()
    outlet = Outlet(store=store, show=shown.append)
    with pytest.raises(FileNotFoundError):
        outlet.received(MESSAGE)
    assert shown == []
    store.close()


def test_an_outlet_may_be_silent() -> None:
    outlet = Outlet()
    outlet.received(MESSAGE)
    outlet.refused(REFUSED)
