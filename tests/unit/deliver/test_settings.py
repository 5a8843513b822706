"""Each setting under mta/deliver has its effect: which test fails without it, and those without a place."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from mqcd.config.settings import HostPort, RelaySettings
from mqcd.core.events import Verb
from tests.fakes.dialer import Peer
from tests.fakes.resolver import FakeResolver
from tests.unit.deliver.kit import BY_DNS, RELAYED, Kit
from tests.unit.effects import wrong

ROOT = "mta/deliver/"
CLIENT, NET = "client/", "client/remotenets/remotenet"
RELAY, ZONE, DESTINATION = "relays/relay", "zones/zone", "destinations/destination"
SAID = "test_client_settings::test_remotenets_change_what_is_said"
STRICT = "test_client_settings::test_where_tls_is_required_nothing_goes_without"
RULED = "test_policy::test_what_is_said_of_a_destination_goes_before_its_zone_and_that_before_the_rest"
ZONED = "test_deliverer::test_a_zones_mail_leaves_from_its_addresses_under_its_name_by_its_delays"
FITS = "test_policy::test_a_match_fits_where_all_that_it_names_fits"
RATED = "test_patrol::test_rates_of_destination_zone_and_sender_come_from_the_settings"
CHOSEN = "test_settings::test_a_relay_has_the_mail_of_its_domains_senders_and_nets"
LOGIN = "test_client_settings::test_a_login_comes_between_hello_and_mail"

TESTS = {
    "queuecache": "test_deliverer::test_the_active_set_is_bounded_and_everything_gets_through",
    "maxconnections": "test_settings::test_maxconnections_holds_for_all_destinations_together",
    "maxserverconnections": RULED,
    "maxmessages": "test_deliverer::test_maxmessages_ends_a_connection_with_quit_behind_the_dot",
    "maxconntime": "test_client_settings::test_maxconntime_ends_a_connection_however_busy",
    "maxidletime": "test_client_settings::test_maxidletime",
    "maxrecips": "test_deliverer::test_recipients_of_one_message_travel_together_up_to_maxrecips",
    "local_mx": "test_enemy_dns::test_a_setting_allows_local_hosts",
    "smtpport": "test_settings::test_hosts_found_by_dns_are_asked_at_smtpport",
    "watchdog": "test_patrol::test_an_attempt_that_does_not_end_is_stuck_and_told_once",
    "audit": "daemon/test_server::test_each_end_is_a_line_of_an_audit_log",
    "audit@rot": "ops/test_audit::test_the_time_of_the_event_decides_the_file_whenever_it_comes",
    "audit@maxfile": "ops/test_audit::test_a_log_that_is_full_goes_on_in_another_file",
    CLIENT + "announcehost": SAID,
    CLIENT + "maxpipeline": "test_client_settings::test_maxpipeline",
    CLIENT + "timeout": "test_client_settings::test_timeout_is_what_the_limits_are_multiples_of",
    CLIENT + "mindatarate": "test_client_settings::test_mindatarate_lengthens_the_wait_by_the_transfer",
    CLIENT + "extCHUNKING": "test_client_settings::test_ext_chunking",
    CLIENT + "sayHELO": "test_client_settings::test_helo",
    CLIENT + "fallbackHELO": "test_client_settings::test_helo",
    CLIENT + "sendQUIT": "test_client_settings::test_send_quit",
    CLIENT + "waitQUIT": "test_client_settings::test_wait_quit",
    CLIENT + "fallbackMX_A": "test_settings::test_the_domains_own_address_stands_in_where_it_may",
    CLIENT + "anonssl": "test_client_settings::test_anonssl_off",
    CLIENT + "anonssl@mandatory": STRICT,
    CLIENT + "trust@file": "test_client_settings::test_terms_of_a_relay_and_the_trust_of_all",
    NET + "@ip": SAID,
    NET + "/announcehost": SAID,
    NET + "/maxpipeline": "test_client_settings::test_remotenets_change_pipelining",
    NET + "/timeout": "test_client_settings::test_remotenets_change_time_limits",
    NET + "/mindatarate": "test_client_settings::test_remotenets_change_time_limits",
    NET + "/extCHUNKING": SAID,
    NET + "/sayHELO": SAID,
    NET + "/fallbackHELO": SAID,
    NET + "/sendQUIT": SAID,
    NET + "/waitQUIT": "test_client_settings::test_remotenets_change_waiting_for_quit",
    NET + "/anonssl": SAID,
    NET + "/anonssl@mandatory": "test_client_settings::test_remotenets_may_require_tls",
    RELAY + "@address": CHOSEN,
    RELAY + "@destdomains": CHOSEN,
    RELAY + "@senders": CHOSEN,
    RELAY + "@sendernets": CHOSEN,
    RELAY + "@lmtp": "test_client_settings::test_lmtp_gives_each_recipient_its_own_verdict",
    RELAY + "/auth@enabled": LOGIN,
    RELAY + "/auth@override": "test_client_settings::test_how_to_log_in",
    RELAY + "/auth@initrsp": "test_client_settings::test_how_to_log_in",
    RELAY + "/auth@cleartext": "test_client_settings::test_cleartext_lets_the_password_go_without_tls",
    RELAY + "/auth/username": LOGIN,
    RELAY + "/auth/password": LOGIN,
    RELAY + "/auth/password@file": "e2e/test_postfix_client::test_dsn_is_passed_on_and_the_relay_reports",
    RELAY + "/ssl@latent": "test_client_settings::test_not_latent_means_tls_from_the_first_octet",
    RELAY + "/ssl@mandatory": STRICT,
    RELAY + "/ssl@verify": STRICT,
    RELAY + "/ssl@certfile": "test_client_settings::test_terms_of_a_relay_and_the_trust_of_all",
    RELAY + "/ssl@keyfile": "test_client_settings::test_terms_of_a_relay_and_the_trust_of_all",
    ZONE + "@name": "test_policy::test_each_zone_and_element_has_lanes_of_its_own",
    ZONE + "@sources": ZONED,
    ZONE + "@helo": ZONED,
    ZONE + "@rate": RATED,
    ZONE + "@maxserverconnections": RULED,
    ZONE + "@retry_delays": ZONED,
    ZONE + "@tls": STRICT,
    ZONE + "/match@sender": FITS,
    ZONE + "/match@domain": FITS,
    ZONE + "/match@listener": FITS,
    ZONE + "/match@header": "e2e/test_zones::test_a_zone_by_a_header_is_kept_over_a_restart",
    ZONE + "/match@user": FITS,
    DESTINATION + "@match": "test_policy::test_the_most_telling_element_has_its_say_wherever_it_stands",
    DESTINATION + "@rate": RATED,
    DESTINATION + "@maxserverconnections": RULED,
    DESTINATION + "@retry_delays": RULED,
    DESTINATION + "@tls": STRICT,
    DESTINATION + "@probe_interval": RULED,
    "senders/sender@match": RATED,
    "senders/sender@rate": RATED,
    "dns@servers": "e2e/test_mx::test_the_most_preferred_host_gets_it",
    "dns@timeout": "net/test_resolver::test_a_silent_server_is_temporary_and_the_next_one_is_asked",
}
"""Setting to the test that fails without its effect; a module without directory lies beside this one."""


def test_every_setting_has_a_test_that_is_there() -> None:
    assert wrong(ROOT, TESTS, "deliver") == []


@pytest.mark.parametrize(("setting", "room"), [(1, 0), (2, 0), (2, 1), (2, 3)])
async def test_maxconnections_holds_for_all_destinations_together(
    setting: int, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    most = min(setting, room or setting)
    relays = tuple(
        RelaySettings(
            address=HostPort(host=f"192.0.2.{number}", port=25), destdomains=(f"d{number}.example",)
        )
        for number in (1, 2)
    )
    silent = {each.address.host: lambda: Peer(replies={"MAIL": None}) for each in relays}
    settings = replace(RELAYED, relays=relays, maxconnections=setting)
    async with Kit(settings, silent, most_connections=room) as kit:
        for number in (1, 2):
            await kit.submit(f"to@d{number}.example")
        await kit.until(lambda: len(kit.dialer.dialled) == most)
        await kit.clock.run_for(1000)
        assert len(kit.dialer.dialled) == most
    assert ("LimitNOFILE" in caplog.text) is (0 < room < setting)


@pytest.mark.parametrize("port", [25, 2525])
async def test_hosts_found_by_dns_are_asked_at_smtpport(port: int) -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]}, addresses={"mx.example.com": ["192.0.2.1"]}
    )
    async with Kit(replace(BY_DNS, smtpport=port), resolver=resolver) as kit:
        await kit.submit("to@example.com")
        await kit.deliverer.drained()
        assert kit.dialer.dialled == [("192.0.2.1", port)]


@pytest.mark.parametrize("may", [True, False])
async def test_the_domains_own_address_stands_in_where_it_may(may: bool) -> None:
    resolver = FakeResolver(
        mx={"example.com": [(1, "mx.example.com")]},
        addresses={"mx.example.com": ["192.0.2.9"], "example.com": ["192.0.2.1"]},
    )
    settings = replace(BY_DNS, client=replace(BY_DNS.client, fallback_mx_a=may))
    async with Kit(settings, {"192.0.2.1": Peer, "192.0.2.9": "Connection refused"}, resolver) as kit:
        await kit.submit("to@example.com")
        await kit.heard(Verb.DELIVERED if may else Verb.DEFERRED)


@pytest.mark.parametrize(
    "told",
    [
        {"destdomains": ("example.com",)},
        {"senders": ("from@example.org",)},
        {"sendernets": (ip_network("198.51.100.0/24"),)},
    ],
)
async def test_a_relay_has_the_mail_of_its_domains_senders_and_nets(told: dict[str, Any]) -> None:
    special = RelaySettings(address=HostPort(host="192.0.2.7", port=25), **told)
    settings = replace(RELAYED, relays=(*RELAYED.relays, special))
    async with Kit(settings, {"192.0.2.1": Peer, "192.0.2.7": Peer}) as kit:
        await kit.submit("to@example.com", client="198.51.100.9")
        await kit.deliverer.drained()
        await kit.submit("to@example.net", sender="else@example.net", client="203.0.113.9")
        await kit.deliverer.drained()
        assert kit.dialer.dialled == [("192.0.2.7", 25), ("192.0.2.1", 2525)]
