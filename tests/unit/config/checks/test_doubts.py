"""What loads and is most likely not meant: warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.config.load import load
from tests.unit.config.samples import HOST, VAR, document, loaded

SERVER = "mta/submit/listeners/listener[1]/server"


def warned(text: str, word: str) -> list[str]:
    """The paths of the warnings that have a word."""
    return [each.path for each in loaded(text).warnings if word in each.text]


def serving(element: str, text: str) -> str:
    return document(f"mta/submit/listeners/listener/server/{element}", text)


@pytest.mark.parametrize(
    "clients",
    [
        "0.0.0.0/0",
        "::/0",
        "0.0.0.0/1 | 128.0.0.0/1",
        "::/1 | 8000::/1",
        "2000::/3",
        "::ffff:0:0/96",
        "127.0.0.1 | 128.0.0.0/2",
        "mail.example.org/1",
        " | ".join(f"{first}.0.0.0/8" for first in range(1, 224)),
    ],
)
def test_an_open_relay_is_a_warning(clients: str) -> None:
    assert warned(serving("relay_clients", clients), "open relay") == [f"{SERVER}/relay_clients"]


@pytest.mark.parametrize(
    "clients",
    [
        "127.0.0.1 | 10.0.0.0/8 | 172.16.0.0/12 | 192.168.0.0/16",
        "fc00::/7 | fe80::/10 | 2001:db8::/32",
        "mail.example.org/24 | 192.0.2.0/24",
        "10.0.0.0/8 | 10.0.0.0/8 | 10.1.0.0/16",
    ],
)
def test_networks_of_a_site_are_no_open_relay(clients: str) -> None:
    assert warned(serving("relay_clients", clients), "") == []


@pytest.mark.parametrize(("size", "warns"), [("64K", True), ("1M", False)])
def test_more_recipients_than_a_segment_takes_are_a_warning(size: str, warns: bool) -> None:
    found = warned(document("mta/queue/journal/segmentsize", size), "fit into a quarter of segmentsize")
    assert found == [f"{SERVER}/maxrecips"] * warns


def test_a_listener_that_lets_nobody_send_is_a_warning() -> None:
    word = "no client may send"
    assert warned(serving("maxhops", "9"), word) == [f"{SERVER}/relay_clients"]
    assert warned(serving("relay_clients", "-"), word) == [f"{SERVER}/relay_clients"]
    assert warned(serving("relay_clients", "192.0.2.1"), word) == []
    assert warned(serving("relay_domains", "a.example"), word) == []
    assert warned(document("mta/queue/read_only", "Y"), word) == []


@pytest.mark.parametrize(("plain", "warnings"), [("", 1), ("<authtypes_ssl>-</authtypes_ssl>", 0),
                                                 ("<authtypes_ssl>plain</authtypes_ssl>", 0),
                                                 ("<authtypes>plain</authtypes>", 1)])  # fmt: skip
def test_users_that_cannot_log_in_are_a_warning(plain: str, warnings: int) -> None:
    text = document("mta/submit/listeners/listener/server", f'<users file="users"/>{plain}')
    assert warned(text, "nobody can log in") == [f"{SERVER}/users@file"] * warnings


def test_a_file_for_mailismus_is_warned_of_other_defaults() -> None:
    ours = "<relay_clients>192.0.2.1</relay_clients>"
    theirs = f"<validate_sender>N</validate_sender><maxrecips>5</maxrecips><transcript>x</transcript>{ours}"
    assert warned(serving("relay_clients", "192.0.2.1"), "Mailismus") == []
    assert warned(document("mta/submit/listeners/listener/server", theirs), "in Mailismus") == [
        "mta/deliver/client/anonssl",
        f"{SERVER}/maxmsgsize",
        f"{SERVER}/maxpeerconnections",
        f"{SERVER}/validate_recip",
    ]


def test_domains_of_relays_that_mailismus_would_take_are_named() -> None:
    text = """<mailserver><directory/><mta><submit><listeners><listener interface="127.0.0.1"><server>
      <relay_domains>{}</relay_domains></server></listener></listeners></submit>
      <deliver><relays><relay address="r" destdomains="a.example, b.example"/></relays></deliver></mta>
    </mailserver>"""
    assert warned(text.format("a.example"), "name b.example here") == [f"{SERVER}/relay_domains"]
    assert warned(text.format("a.example | b.example"), "destdomains") == []


def test_secrets_that_every_user_can_read_are_warnings(tmp_path: Path) -> None:
    relay = "mta/deliver/relays/relay[1]"
    for name in ("secret", "key", "hash"):
        (tmp_path / name).write_text("s3cret\n")
    conf = tmp_path / "mqcd.xml"

    def warned_of(auth: str, mode: int) -> list[str]:
        conf.write_text(f"""<mailserver><mta>
          <submit><listeners><listener interface="127.0.0.1"><server><relay_clients>127.0.0.1</relay_clients>
          </server></listener></listeners></submit>
          <deliver><relays><relay address="r.example"><ssl latent="Y" certfile="{tmp_path}/cert"
            keyfile="{tmp_path}/key"/><auth enabled="Y"><username>u</username>{auth}</auth></relay></relays>
          </deliver></mta><ops><events><hashkey file="{tmp_path}/hash"/></events></ops></mailserver>""")
        for path in tmp_path.iterdir():
            path.chmod(mode)
        warnings = load(conf, var=VAR, hostname=HOST).warnings
        assert "s3cret" not in " ".join(map(str, warnings))
        return [each.path for each in warnings if "every user can read" in each.text]

    inline, of_its_own = "<password>s3cret</password>", f'<password file="{tmp_path}/secret"/>'
    files = [f"{relay}/ssl@keyfile", "ops/events/hashkey@file"]
    assert warned_of(inline, 0o644) == [f"{relay}/auth/password", *files]
    assert warned_of(of_its_own, 0o644) == [f"{relay}/auth/password@file", *files]
    assert warned_of(inline, 0o640) == []
    assert warned_of(of_its_own, 0o600) == []
