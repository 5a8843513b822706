"""Each setting of a listener has its effect: which test fails without it."""

from __future__ import annotations

from tests.unit.effects import wrong

SERVER = "/server/"
OFFERS = "test_dialogue::test_ehlo_offers_what_the_settings_say"
TESTS = {
    "@name": "daemon/test_server::test_each_listener_is_told_with_the_port_that_it_has",
    "@interface": "daemon/test_server::test_a_port_that_is_taken_names_the_line",
    "@port": "daemon/test_server::test_a_port_that_is_taken_names_the_line",
    SERVER + "relay_clients": "test_dialogue::test_a_listed_client_relays",
    SERVER + "relay_domains": "e2e/test_operating::test_it_is_no_open_relay",
    SERVER + "announcehost": OFFERS,
    SERVER + "smtpgreet": "test_dialogue::test_the_greeting_is_the_operators",
    SERVER + "maxhops": "test_door::test_a_loop_ends",
    SERVER + "maxpeerconnections": "test_door::test_connections_from_one_address_are_limited",
    SERVER + "maxmsgsize": "test_dialogue::test_size_is_refused_at_mail",
    SERVER + "maxrecips": "test_dialogue::test_recipients_are_limited",
    SERVER + "maxmessages": "test_dialogue::test_messages_are_limited",
    SERVER + "maxbadreqs": "test_dialogue::test_bad_commands_are_limited",
    SERVER + "timeout": "test_door::test_a_silent_client_is_cut_off",
    SERVER + "bare_newline": "test_door::test_smuggling_is_refused_and_the_session_stays_in_step",
    SERVER + "omitreceivedheader": "test_door::test_no_received_header_where_it_is_unwanted",
    SERVER + "extPIPELINING": OFFERS,
    SERVER + "extSIZE": OFFERS,
    SERVER + "ext8BITMIME": OFFERS,
}


def test_every_setting_has_a_test_that_is_there() -> None:
    assert wrong("mta/submit/listeners/listener", TESTS, "submit") == []
