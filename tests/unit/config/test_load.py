"""A file to settings: defaults, tokens, inheritance, and every error at once with its place."""

import dataclasses
import ipaddress
import pathlib

import pytest

from mqcd.config.blocks import bare
from mqcd.config.kinds.overriding import given
from mqcd.config.load import MAX_OCTETS, MAX_SECRET, defaults, load
from mqcd.config.problems import BadConfiguration
from mqcd.config.schema import ROWS
from mqcd.config.settings import (
    DestinationSettings,
    HostPort,
    ListenerSettings,
    LogFormat,
    LogLevel,
    NetworkSettings,
    RelaySettings,
    Secret,
    ServerSettings,
    Settings,
    Source,
    ZoneMatchSettings,
    ZoneSettings,
)
from mqcd.config.show import as_xml, rows
from mqcd.core.errors import MqcdError
from mqcd.core.units import HOUR, MINUTE
from tests.unit.config.samples import CONF, HOST, VAR, document, errors, loaded

EMPTY = "<mailserver/>"


def test_a_file_that_says_nothing_has_all_defaults() -> None:
    settings = loaded(EMPTY).settings
    assert settings == defaults(var=VAR, hostname=HOST)
    assert settings.queue.rootpath == VAR / "queue"
    assert settings.queue.spool.rootpath == VAR / "spool"
    assert settings.ops.events.rootpath == VAR / "events"
    assert settings.ops.node == HOST
    assert settings.report.ndr_from == "postmaster@example.org"
    raw = Settings()
    assert (
        dataclasses.replace(settings.queue, rootpath=raw.queue.rootpath, spool=raw.queue.spool) == raw.queue
    )


def test_the_host_name_is_announced_by_default() -> None:
    settings = loaded(document("application/announcehost", "mail.example.net")).settings
    assert settings.submit.listeners[0].server.announcehost == "mail.example.net"
    assert settings.deliver.client.announcehost == "mail.example.net"
    assert settings.report.announcemta == "mail.example.net"
    assert settings.report.ndr_from == "postmaster@example.net"


def test_no_name_of_its_own_in_a_network_is_the_applications() -> None:
    settings = loaded(
        document(
            "mta/submit/listeners/listener/server",
            "<announcehost>in.example.net</announcehost><remotenets><remotenet ip='192.0.2.1'>"
            "<announcehost>-</announcehost><smtpgreet>at %H%</smtpgreet></remotenet></remotenets>",
        )
    ).settings
    [network] = settings.submit.listeners[0].server.remotenets
    assert given(network, NetworkSettings) == {"announcehost": HOST, "smtpgreet": f"at {HOST}"}


@pytest.mark.parametrize(
    "path",
    [path for path, row in ROWS.items() if row.default == "" and not row.required],
)
def test_a_dash_is_no_text(path: str) -> None:
    assert loaded(document(path, "-")).settings == loaded(document(path, "")).settings


def test_an_announced_name_of_its_own_wins() -> None:
    settings = loaded(document("mta/deliver/client/announcehost", "out.example.net")).settings
    assert settings.deliver.client.announcehost == "out.example.net"
    assert settings.report.announcemta == HOST


@pytest.mark.parametrize(
    ("host", "sender"),
    [
        ("mx.example.org", "postmaster@example.org"),
        ("example.org", "postmaster@example.org"),
        ("box", "postmaster@box"),
        ("[192.0.2.1]", "postmaster@[192.0.2.1]"),
    ],
)
def test_reports_come_from_the_domain_around_the_host(host: str, sender: str) -> None:
    assert loaded(document("application/announcehost", host)).settings.report.ndr_from == sender


def test_var_is_beside_the_directory_of_the_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "conf" / "mqcd.xml"
    file.parent.mkdir()
    file.write_text(EMPTY)
    assert load(file, var=None, hostname=HOST).settings.queue.rootpath == tmp_path / "var" / "queue"
    assert load(file, var=VAR, hostname=HOST).settings.queue.rootpath == VAR / "queue"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("%DIRVAR%/q", VAR / "q"),
        ("%DIRCONF%/q", CONF / "q"),
        ("%DIRLOG%/q", VAR / "logs" / "q"),
        ("%DIRTMP%/q", VAR / "tmp" / "q"),
        ("/disk1/%SYSNAME%/q", pathlib.Path("/disk1") / HOST / "q"),
        ("/disk1/Y%Y%/%DT%", pathlib.Path("/disk1/Y%Y%/%DT%")),
        ("beside", CONF / "beside"),
    ],
)
def test_tokens_in_paths(text: str, path: pathlib.Path) -> None:
    assert loaded(document("mta/queue/rootpath", text)).settings.queue.rootpath == path


def test_a_token_that_nobody_replaces_is_an_error() -> None:
    (error,) = errors(document("mta/queue/rootpath", "%DIRVARR%/q"))
    assert str(error).startswith("test.xml:1: mta/queue/rootpath: unknown token %DIRVARR%: ")
    assert "%DIRVAR%" in str(error)


def test_values_of_every_kind() -> None:
    settings = loaded(
        """<mailserver>
  <application><user>mail</user></application>
  <mta>
    <queue><retry_delays>1m | 1h30m</retry_delays><maxmemoryqueue>7</maxmemoryqueue>
      <retry_jitter>0%</retry_jitter>
      <journal><segmentsize>1mb</segmentsize></journal></queue>
    <submit><listeners>
      <listener name="in" interface="0.0.0.0" port="2525"><server>
        <relay_clients>127.0.0.1 | 10.1/16 | %SYSNAME%/24</relay_clients>
        <relay_domains>Example.ORG | bücher.example</relay_domains>
        <smtpgreet>%H% (%PRODNAME%) ready</smtpgreet>
      </server></listener>
      <listener name="lo" interface="::1" port="0"/>
    </listeners></submit>
    <deliver>
      <relays><relay address="[::1]:2602"/>
        <relay address="smart" destdomains="a.example, B.example"/></relays>
      <dns servers="127.0.0.1:5353 | ::1" timeout="1500"/>
    </deliver>
    <report><ndr_recip_redirect>.</ndr_recip_redirect></report>
  </mta>
  <ops port="0"><log format="json" level="debug"/></ops>
</mailserver>"""
    ).settings
    assert settings.application.user == "mail"
    assert settings.queue.retry_delays == (MINUTE, HOUR + 30 * MINUTE)
    assert settings.queue.maxmemoryqueue == 7
    assert settings.queue.retry_jitter == 0
    assert settings.queue.journal.segmentsize == 1024 * 1024
    first, second = settings.submit.listeners
    assert first.server.relay_clients == (
        ipaddress.ip_network("127.0.0.1/32"),
        ipaddress.ip_network("10.1.0.0/16"),
        "mx.example.org/24",
    )
    assert first.server.relay_domains == ("example.org", "xn--bcher-kva.example")
    assert first.server.smtpgreet == "(mqcd) ready"
    assert second == ListenerSettings(
        name="lo", interface="::1", port=0, server=ServerSettings(announcehost=HOST)
    )
    assert settings.deliver.relays == (
        RelaySettings(address=HostPort(host="::1", port=2602)),
        RelaySettings(address=HostPort(host="smart", port=25), destdomains=("a.example", "b.example")),
    )
    assert settings.deliver.dns.servers == (
        HostPort(host="127.0.0.1", port=5353),
        HostPort(host="::1", port=53),
    )
    assert settings.deliver.dns.timeout == 1500
    assert settings.report.ndr_recip_redirect == "."
    assert settings.ops.port == 0
    assert (settings.ops.log.format, settings.ops.log.level) == (LogFormat.JSON, LogLevel.DEBUG)


@pytest.mark.parametrize("path", ROWS)
def test_an_empty_element_has_its_default(path: str) -> None:
    if ROWS[path].required:
        assert [remark.path for remark in errors(document(path, ""))]
        return
    settings = loaded(document(path, "")).settings
    if settings != defaults(var=VAR, hostname=HOST):
        # Of a block that is there only if it is written.
        [shown] = [each for each in rows(settings) if bare(each.path) == path]
        assert shown.value == shown.default


def test_none_is_no_listener_and_an_empty_list_is_the_default() -> None:
    assert loaded(document("mta/submit/listeners", "-")).settings.submit.listeners == ()
    (listener,) = loaded(document("mta/submit/listeners", "")).settings.submit.listeners
    assert (listener.interface, listener.port) == ("127.0.0.1", 25)


@pytest.mark.parametrize(
    "text",
    [
        EMPTY,
        document("mta/submit/listeners", "<listener/>"),
        document("mta/submit/listeners", '<listener interface=" "/>'),
    ],
)
def test_a_listener_without_interface_binds_loopback_and_warns(text: str) -> None:
    result = loaded(text)
    assert result.settings.submit.listeners[0].interface == "127.0.0.1"
    assert [warning.path for warning in result.warnings] == [
        "mta/submit/listeners/listener[1]/server/relay_clients",
        "mta/submit/listeners/listener[1]@interface",
    ]


def test_a_default_relay_alone_lowers_the_connection_limit() -> None:
    relay = "<relays><relay address='smart'/></relays>"
    other = "<relays><relay address='smart'/><relay address='b' destdomains='b.example'/></relays>"
    told = relay + "<maxconnections>2500</maxconnections>"
    empty = relay + "<maxconnections/>"
    assert loaded(document("mta/deliver", relay)).settings.deliver.maxconnections == 500
    assert loaded(document("mta/deliver", empty)).settings.deliver.maxconnections == 500
    assert loaded(document("mta/deliver", other)).settings.deliver.maxconnections == 2500
    assert loaded(document("mta/deliver", told)).settings.deliver.maxconnections == 2500


@pytest.mark.parametrize(
    ("inner", "path"),
    [
        (
            "<retry_maxtime>1h</retry_maxtime><retry_maxtime_reports>2h</retry_maxtime_reports>",
            "mta/queue/retry_maxtime_reports",
        ),
        ("<retry_granularity>10ms</retry_granularity>", "mta/queue/retry_granularity"),
        (
            "<journal><segmentsize>1M</segmentsize><inline_max>200K</inline_max></journal>",
            "mta/queue/journal/inline_max",
        ),
    ],
)
def test_a_value_beyond_its_cap_is_capped_with_a_warning(inner: str, path: str) -> None:
    result = loaded(document("mta/queue", inner))
    assert path in [warning.path for warning in result.warnings]
    assert result.settings.queue.retry_maxtime_reports <= result.settings.queue.retry_maxtime
    assert result.settings.queue.retry_granularity >= 1000
    assert result.settings.queue.journal.inline_max <= result.settings.queue.journal.segmentsize // 8


@pytest.mark.parametrize(
    ("path", "largest", "beyond", "bounds"),
    [
        ("mta/queue/journal/segmentsize", "1G", "1025M", "at least 64K, at most 1G"),
        ("mta/queue/journal/segmentsize", "1G", "1000G", "at least 64K, at most 1G"),
        ("mta/queue/maxclustersize", "256M", "1G", "at least 4K, at most 256M"),
        ("mta/queue/spool/bufsize", "16M", "17M", "at least 512, at most 16M"),
        ("mta/queue/retry_maxtime", "365d", "53w", "at most 365d"),
        ("mta/queue/retry_maxtime_reports", "365d", "53w", "at most 365d"),
        ("mta/queue/retry_delays", "15m | 365d", "15m | 53w", "at least 1ms, at most 365d"),
        ("mta/queue/retry_granularity", "365d", "53w", "at most 365d"),
        ("mta/deliver/zones/zone@retry_delays", "365d", "99999w", "at least 1ms, at most 365d"),
        ("mta/deliver/destinations/destination@retry_delays", "1h", "366d", "at least 1ms, at most 365d"),
    ],
)
def test_what_no_queue_can_do_with_is_refused(path: str, largest: str, beyond: str, bounds: str) -> None:
    assert not errors(document(path, largest))
    [error] = errors(document(path, beyond))
    assert bare(error.path) == path
    assert error.line == 1
    assert error.text.endswith(bounds)


def test_a_shorter_age_caps_that_of_reports_without_a_word() -> None:
    result = loaded(document("mta/queue/retry_maxtime", "1h"))
    assert result.settings.queue.retry_maxtime_reports == HOUR
    assert not [warning for warning in result.warnings if "retry" in warning.path]


WRONG = """<mailserver>
  <aplication/>
  <mta>
    <queue>
      <maxclustersize>1.5K</maxclustersize>
      <minfre>3</minfre>
      <retry_delays>1h | soon</retry_delays>
      <spool><maxrecips>4</maxrecips></spool>
      <retry_jitter>10%</retry_jitter>
      <retry_jitter>20%</retry_jitter>
    </queue>
    <submit><listeners>
      <listener prt="4" interface="127.0.0.1" port="99999"/>
      <lisener/>
    </listeners></submit>
    <deliver>
      loose
      <relays><relay/></relays>
    </deliver>
  </mta>
</mailserver>"""


def test_every_error_is_reported_with_place_and_expectation() -> None:
    with pytest.raises(BadConfiguration) as caught:
        loaded(WRONG)
    lines = str(caught.value).splitlines()
    assert [line.partition(": expected")[0] for line in lines] == [
        "test.xml:2: aplication: unknown element: did you mean application?",
        'test.xml:5: mta/queue/maxclustersize: "1.5K" does not fit',
        "test.xml:6: mta/queue/minfre: unknown element: did you mean minfree?",
        'test.xml:7: mta/queue/retry_delays: "soon" does not fit',
        "test.xml:8: mta/queue/spool/maxrecips: unknown element here: it belongs at "
        "mta/submit/listeners/listener/server/maxrecips",
        "test.xml:9: mta/queue/retry_jitter: given again on line 10: keep one of the two",
        'test.xml:13: mta/submit/listeners/listener[1]@port: "99999" does not fit',
        "test.xml:13: mta/submit/listeners/listener[1]@prt: unknown attribute: did you mean @port?",
        "test.xml:14: mta/submit/listeners/lisener: unknown element: did you mean listener?",
        "test.xml:16: mta/deliver: text stands between elements: remove it, or put it in one of them",
        "test.xml:18: mta/deliver/relays/relay[1]@address: must be given",
    ]


@pytest.mark.parametrize("path", ROWS)
def test_a_name_misspelt_finds_its_way_back(path: str) -> None:
    at = path.rfind("@") if "@" in path else path.rfind("/")
    name = path[at + 1 :]
    wrong = path[: at + 1] + name[:-1] + name[-1] * 2
    messages = [str(error) for error in errors(document(wrong, "1"))]
    assert [message for message in messages if f"did you mean {'@' * ('@' in path)}{name}?" in message]


RELAY = "mta/deliver/relays/relay[1]"


def relayed(inner: str) -> str:
    """A relay with this inside."""
    return f'<deliver><relays><relay address="a">{inner}</relay></relays></deliver>'


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            "<queue><rootpath>/d</rootpath><spool><rootpath>/d</rootpath></spool></queue>",
            "mta/queue/rootpath",
        ),
        (
            '<submit><listeners><listener name="a" interface="::1"/><listener name="a" interface="::"/>'
            "</listeners></submit>",
            "mta/submit/listeners/listener[2]@name",
        ),
        (
            '<submit><listeners><listener name="a" interface="::1"/><listener name="b" interface="::1"/>'
            "</listeners></submit>",
            "mta/submit/listeners/listener[2]@port",
        ),
        (
            '<submit><listeners><listener name="a" interface="::"/><listener name="b" interface="0.0.0.0"/>'
            "</listeners></submit>",
            "mta/submit/listeners/listener[2]@port",
        ),
        (
            '<submit><listeners><listener interface="127.0.0.1" port="9125"/></listeners></submit>',
            "mta/submit/listeners/listener[1]@port",
        ),
        (
            '<deliver><relays><relay address="a"/><relay address="b"/></relays></deliver>',
            "mta/deliver/relays/relay[2]",
        ),
        (
            '<deliver><relays><relay address="a" destdomains="x, y"/><relay address="b" destdomains="Y"/>'
            "</relays></deliver>",
            "mta/deliver/relays/relay[2]@destdomains",
        ),
        (relayed('<auth enabled="Y"><password>p</password></auth>'), f"{RELAY}/auth/username"),
        (relayed('<auth enabled="Y"><username>u</username></auth>'), f"{RELAY}/auth/password"),
        (relayed('<auth><password file="f">p</password></auth>'), f"{RELAY}/auth/password"),
        (relayed('<auth enabled="Y" override="external"/><ssl latent="Y"/>'), f"{RELAY}/ssl@certfile"),
        (relayed('<ssl mandatory="Y"/>'), f"{RELAY}/ssl@latent"),
        (relayed('<ssl latent="Y" keyfile="k"/>'), f"{RELAY}/ssl@certfile"),
        (
            '<deliver><client><anonssl mandatory="Y">N</anonssl></client></deliver>',
            "mta/deliver/client/anonssl@mandatory",
        ),
        (
            '<deliver><client><anonssl mandatory="Y"/><remotenets><remotenet ip="192.0.2.1">'
            "<anonssl>N</anonssl></remotenet></remotenets></client></deliver>",
            "mta/deliver/client/remotenets/remotenet[1]/anonssl@mandatory",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_errors(text: str, path: str) -> None:
    assert path in [error.path for error in errors(document("mta", text))]


LOGIN = "<username>u</username><password>p</password></auth>"


@pytest.mark.parametrize(
    ("inner", "warned"),
    [
        ('<auth enabled="Y">' + LOGIN, []),
        ('<auth enabled="Y">' + LOGIN + '<ssl latent="Y" verify="-"/>', []),
        ('<auth enabled="Y">' + LOGIN + '<ssl verify="N"/>', [f"{RELAY}/ssl@verify"]),
        ('<auth enabled="Y" cleartext="Y">' + LOGIN, [f"{RELAY}/auth@cleartext"]),
        ('<auth enabled="Y" cleartext="Y">' + LOGIN + '<ssl latent="Y" verify="Y"/>', []),
        ('<auth enabled="N" cleartext="Y">' + LOGIN + '<ssl verify="N"/>', []),
    ],
)
def test_a_login_that_others_may_see_is_warned_of(inner: str, warned: list[str]) -> None:
    warnings = [each.path for each in loaded(document("mta", relayed(inner))).warnings]
    assert [path for path in warnings if path.startswith(RELAY)] == warned


def test_listeners_on_any_free_port_do_not_collide() -> None:
    text = '<listener name="a" interface="::1" port="0"/><listener name="b" interface="::1" port="0"/>'
    assert not errors(document("mta/submit/listeners", text))


def test_another_root_is_no_configuration() -> None:
    (error,) = errors("<naf/>")
    assert str(error).startswith("test.xml:1: <naf> ")
    assert "<mailserver>" in str(error)


def test_a_file_that_is_not_there_says_how_to_name_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MqcdError, match=r"absent\.xml: cannot be read: .*MQCD_CONF"):
        load(tmp_path / "absent.xml", var=None, hostname=HOST)


def test_a_broken_file_is_a_configuration_error_with_its_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mqcd.xml"
    file.write_text("<mailserver>\n<mta>\n</mailserver>")
    with pytest.raises(BadConfiguration, match=r"mqcd\.xml:3: not well-formed XML: .*mta"):
        load(file, var=None, hostname=HOST)


def test_a_huge_file_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mqcd.xml"
    file.write_bytes(b" " * (MAX_OCTETS + 1))
    with pytest.raises(BadConfiguration, match="no configuration"):
        load(file, var=None, hostname=HOST)


def test_zones_and_destinations_load_as_written() -> None:
    deliver = loaded(
        document(
            "mta/deliver",
            """<zones><zone name="bulk" sources="192.0.2.1*3 | [2001:db8::1]" helo="out.example"
              retry_delays="5m | 1h" maxserverconnections="4">
              <match sender="&lt;&gt; | lists.example"/><match domain="*.example"/></zone></zones>
            <destinations><destination match="*.mail.example" probe_interval="30s"/></destinations>""",
        )
    ).settings.deliver
    assert deliver.zones == (
        ZoneSettings(
            name="bulk",
            sources=(Source(address="192.0.2.1", weight=3), Source(address="2001:db8::1")),
            helo="out.example",
            retry_delays=(300_000, 3_600_000),
            maxserverconnections=4,
            matches=(
                ZoneMatchSettings(sender=("<>", "lists.example")),
                ZoneMatchSettings(domain=("*.example",)),
            ),
        ),
    )
    assert deliver.destinations == (DestinationSettings(match="*.mail.example", probe_interval=30_000),)


def test_useless_zones_are_warned_about() -> None:
    [warning] = [
        each
        for each in loaded(document("mta/deliver/zones", '<zone name="a"/>')).warnings
        if "zones" in each.path
    ]
    assert warning.path == "mta/deliver/zones/zone[1]"
    assert "no match" in warning.text
    [error] = errors(document("mta/deliver/zones", '<zone name="a"><match listener="none"/></zone>'))
    assert error.path == "mta/deliver/zones/zone[1]/match[1]@listener"
    zones = '<zone name="a"><match/></zone>' * 2
    assert [each.path for each in errors(document("mta/deliver/zones", zones))] == [
        "mta/deliver/zones/zone[1]@name",
        "mta/deliver/zones/zone[2]@name",
    ]
    again = '<destination match="A.example"/><destination match="a.example"/>'
    assert len(errors(document("mta/deliver/destinations", again))) == 2


def test_a_password_comes_from_its_file_and_is_shown_nowhere(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "relay.secret").write_text("from the file\nmore\n")
    conf = tmp_path / "conf" / "mqcd.xml"
    login = '<auth enabled="Y"><username>u</username>{}</auth>'
    conf.write_text(document("mta", relayed(login.format('<password file="relay.secret"/>'))))
    by_file = load(conf, var=VAR, hostname=HOST).settings
    assert by_file.deliver.relays[0].auth.password == Secret("from the file", from_file=True)
    conf.write_text(document("mta", relayed(login.format("<password>in the text</password>"))))
    by_text = load(conf, var=VAR, hostname=HOST).settings
    assert by_text.deliver.relays[0].auth.password == Secret("in the text")
    for settings, secret in ((by_file, "from the file"), (by_text, "in the text")):
        assert secret not in repr(settings)
        assert secret not in as_xml(settings)
    assert "relay.secret" in as_xml(by_file)
    assert '<password file="">(hidden)</password>' in as_xml(by_text)
    assert [error.path for error in errors(as_xml(by_text))] == [f"{RELAY}/auth/password"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\nmore"])
@pytest.mark.parametrize("password", ["a\u2028b\x0bc\x85d", "x" * MAX_SECRET])
def test_a_password_is_its_whole_line(tmp_path: pathlib.Path, password: str, end: str) -> None:
    (tmp_path / "secret").write_bytes(f"{password}{end}".encode())
    conf = tmp_path / "mqcd.xml"
    login = '<auth enabled="Y"><username>u</username><password file="secret"/></auth>'
    conf.write_text(document("mta", relayed(login)))
    found = load(conf, var=VAR, hostname=HOST).settings
    assert found.deliver.relays[0].auth.password.text == password


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\n", b"x" * (MAX_SECRET + 1) + b"\r\n"])
def test_a_password_s_file_that_will_not_do_is_an_error(
    tmp_path: pathlib.Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    conf = tmp_path / "mqcd.xml"
    login = '<auth enabled="Y"><username>u</username><password file="secret"/></auth>'
    conf.write_text(document("mta", relayed(login)))
    with pytest.raises(BadConfiguration) as caught:
        load(conf, var=VAR, hostname=HOST)
    assert [remark.path for remark in caught.value.remarks] == [f"{RELAY}/auth/password@file"]


def test_the_pages_are_bound_to_an_address() -> None:
    [error] = errors('<mailserver><ops interface="localhost"/></mailserver>')
    assert (error.path, "an IP address" in str(error)) == ("ops@interface", True)
    assert loaded('<mailserver><ops interface="[::1]"/></mailserver>').settings.ops.interface == "::1"


@pytest.mark.parametrize(
    ("interface", "host", "own"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "localhost", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "127.0.0.2", True),
        ("::", "::1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("192.0.2.1", "192.0.2.1", True),
        ("0.0.0.0", "192.0.2.1", False),
        ("0.0.0.0", "::1", False),
        ("127.0.0.1", "relay.example.net", False),
    ],
)
def test_a_relay_that_is_our_own_listener_is_an_error(interface: str, host: str, own: bool) -> None:
    address = f"[{host}]:2525" if ":" in host else f"{host}:2525"
    text = f"""<mailserver><mta>
  <submit><listeners><listener interface="{interface}" port="2525"/></listeners></submit>
  <deliver><relays><relay address="{address}"/></relays></deliver></mta></mailserver>"""
    assert [error.path for error in errors(text)] == ["mta/deliver/relays/relay[1]@address"] * own
    assert errors(text.replace('port="2525"', 'port="25"')) == ()


@pytest.mark.parametrize(
    ("inner", "path"),
    [
        ('<quotas><quota by="client" match="ann" messages="1/h"/></quotas>', "quotas/quota@match"),
        ('<quotas><quota by="user" match="ann" messages="1/h"/></quotas>', ""),
        ('<quotas><quota by="network" match="192.0.2.0/24 | 2001:db8::1" octets="1G/d"/></quotas>', ""),
        ("<tenant>header</tenant>", "tenant@header"),
        ('<tenant header="X-Tenant">header</tenant>', ""),
    ],
)
def test_quotas_that_cannot_be_are_errors(inner: str, path: str) -> None:
    server = "mta/submit/listeners/listener/server"
    found = [bare(error.path) for error in errors(document(server, inner))]
    assert found == ([f"{server}/{path}"] if path else [])


def with_ssl(ssl: str, server: str = "") -> str:
    """A listener with this `ssl` element."""
    return document("mta/submit/listeners/listener", f"{ssl}<server>{server}</server>")


SSL = "mta/submit/listeners/listener[1]/ssl"
EXTERNAL = '<users file="u"/><authtypes>external</authtypes>'


@pytest.mark.parametrize(
    ("ssl", "server", "path"),
    [
        ('<ssl certfile="a"/>', "", f"{SSL}@latent"),
        ('<ssl latent="N"/>', "", f"{SSL}@certfile"),
        ('<ssl latent="Y" mandatory="Y"/>', "", f"{SSL}@certfile"),
        ('<ssl latent="Y" keyfile="k"/>', "", f"{SSL}@certfile"),
        ('<ssl latent="Y" certfile="a | b" keyfile="k"/>', "", f"{SSL}@keyfile"),
        ("", '<users file="u"/><authtypes>external</authtypes>', f"{SSL}@trust"),
        (
            '<ssl latent="Y" certfile="a"/>',
            '<users file="u"/><authtypes>external</authtypes>',
            f"{SSL}@trust",
        ),
    ],
)
def test_tls_of_a_listener_that_cannot_be_is_an_error(ssl: str, server: str, path: str) -> None:
    assert [error.path for error in errors(with_ssl(ssl, server))] == [path]


def test_a_listener_has_several_certificates() -> None:
    text = with_ssl('<ssl latent="Y" certfile="a | /b" keyfile="k | %DIRVAR%/l"/>')
    [listener] = loaded(text).settings.submit.listeners
    assert listener.ssl.certfile == (CONF / "a", pathlib.Path("/b"))
    assert listener.ssl.keyfile == (CONF / "k", VAR / "l")
    assert [error.path for error in errors(text.replace("DIRVAR", "DIRVER"))] == [f"{SSL}@keyfile"]


def test_optional_tls_without_a_certificate_is_a_warning() -> None:
    assert f"{SSL}@certfile" in [each.path for each in loaded(with_ssl('<ssl latent="Y"/>')).warnings]


@pytest.mark.parametrize(
    ("attributes", "inner", "path"),
    [
        ("", "", "@port"),
        (' port="24"', '<server><filter class="a:B"/></server>', "/server/filter@class"),
        (' port="24"', "", ""),
    ],
)
def test_what_lmtp_cannot_have_is_an_error(attributes: str, inner: str, path: str) -> None:
    text = f'<listener interface="127.0.0.1" protocol="lmtp"{attributes}>{inner}</listener>'
    found = [error.path for error in errors(document("mta/submit/listeners", text))]
    assert found == ([f"mta/submit/listeners/listener[1]{path}"] if path else [])
