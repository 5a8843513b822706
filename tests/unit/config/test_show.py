"""Settings to XML and back, and the shipped file held against the code."""

import dataclasses
import ipaddress
import pathlib

import pytest

from mqcd.config.load import defaults, load
from mqcd.config.schema import ROWS
from mqcd.config.settings import (
    ClientSettings,
    DestinationSettings,
    HostPort,
    ListenerSettings,
    RelaySettings,
    RemoteNetSettings,
    ServerSettings,
    Settings,
    Source,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.config.show import as_xml, shipped
from tests.unit.config.samples import HOST, VAR, document, loaded

SHIPPED = pathlib.Path(__file__).parents[3] / "conf" / "mqcd.xml"


def test_the_shipped_file_is_what_the_code_says() -> None:
    assert SHIPPED.read_text() == shipped(), "write mqcd.config.show.shipped() to conf/mqcd.xml"


def test_the_shipped_file_is_all_defaults_and_lets_nobody_send() -> None:
    result = load(SHIPPED, var=VAR, hostname=HOST)
    assert result.settings == defaults(var=VAR, hostname=HOST)
    assert [warning.path for warning in result.warnings] == [
        "mta/submit/listeners/listener[1]/server/relay_clients"
    ]


@pytest.mark.parametrize("path", ROWS)
def test_every_setting_is_in_the_example_with_its_help(path: str) -> None:
    text, row = SHIPPED.read_text(), ROWS[path]
    assert row.gloss in text
    name = row.xml_attribute or row.element
    assert f' {name}="' in text or f"<{name}>" in text or f"<{name} " in text


def settings_of_every_kind() -> Settings:
    """Settings that differ from the defaults wherever a value may need care."""
    usual = defaults(var=VAR, hostname=HOST)
    server = ServerSettings(
        relay_clients=(ipaddress.ip_network("10.0.0.0/8"), "web.example/24"),
        relay_domains=("example.org", "xn--bcher-kva.example"),
        announcehost="in.example.org",
        smtpgreet='"quoted" <&> greeting',
        ext_8bitmime=False,
    )
    listeners = (
        ListenerSettings(name="one", interface="::1", port=25, server=server),
        ListenerSettings(name="two", interface="127.0.0.1", port=0, server=server),
    )
    relays = (
        RelaySettings(address=HostPort(host="::1", port=2525), destdomains=("a.example", "b.example")),
        RelaySettings(address=HostPort(host="smart.example", port=25)),
    )
    zones = (
        ZoneSettings(
            name="bulk",
            sources=(Source(address="192.0.2.1", weight=3), Source(address="2001:db8::1")),
            helo="bulk.example.org",
            maxserverconnections=4,
            retry_delays=(60_000, 3_600_000),
            matches=(ZoneMatchSettings(sender=("<>", "a@b.example")), ZoneMatchSettings(user=("ann",))),
        ),
        ZoneSettings(name="rest", matches=(ZoneMatchSettings(),)),
    )
    destinations = (DestinationSettings(match="*.mail.example", probe_interval=30_000),)
    return dataclasses.replace(
        usual,
        application=dataclasses.replace(usual.application, user="mail"),
        queue=dataclasses.replace(usual.queue, retry_delays=(1, 90_061_001), retry_jitter=0, minfree=1000),
        submit=dataclasses.replace(usual.submit, listeners=listeners),
        deliver=dataclasses.replace(
            usual.deliver,
            relays=relays,
            zones=zones,
            destinations=destinations,
            client=ClientSettings(
                announcehost="out.example.org",
                anonssl=False,
                remotenets=(
                    RemoteNetSettings(
                        ip=(ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("::1")),
                        maxpipeline=0,
                        anonssl=True,
                        tls_mandatory=False,
                    ),
                ),
            ),
        ),
        report=dataclasses.replace(
            usual.report,
            ndr_recip_redirect=".",
            ndr_recips_additional=("a@example.org", "b@example.org"),
            ndr_subject="",
            ndr_textpart="Dear %PRODNAME%\n\n  <user> & friends",
        ),
    )


def test_what_is_shown_loads_to_the_same_settings() -> None:
    usual, changed = defaults(var=VAR, hostname=HOST), settings_of_every_kind()
    bare = dataclasses.replace(usual, submit=dataclasses.replace(usual.submit, listeners=()))
    for settings in (usual, changed, bare):
        for glosses in (False, True):
            assert loaded(as_xml(settings, glosses=glosses)).settings == settings


def test_effective_settings_show_paths_and_names_in_full() -> None:
    text = as_xml(loaded(document("application/announcehost", "mail.example.net")).settings)
    assert f"<rootpath>{VAR}/queue</rootpath>" in text
    assert text.count("<announcehost>mail.example.net</announcehost>") == 3
    assert "%DIRVAR%" not in text
