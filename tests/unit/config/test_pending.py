"""What a Mailismus file says beyond mqcd: warned about where harmless, refused where it restricts."""

import pathlib

import pytest

from mqcd.config.blocks import bare
from mqcd.config.load import load
from mqcd.config.pending import NO_EFFECT, NOT_YET_RESTRICTING
from tests.unit.config.samples import HOST, VAR, document, errors, loaded

DATA = pathlib.Path(__file__).parents[2] / "data" / "mailismus"

TEXTS = {
    "mta/queue/deferred_maxignore": "6m",
}
# Both tables name them: what counts is what they say.
BY_CONTENT = set(NOT_YET_RESTRICTING) & set(NO_EFFECT)

EVERYTHING = """<mailserver>
  <application><announcehost>%SYSNAME%</announcehost><database type="h2"/></application>
  <directory enabled="Y"><users>%DIRCONF%/users</users></directory>
  <message_store enabled="Y"><userpath>%DIRVAR%/ms</userpath></message_store>
  <mta>
    <queue><spool/></queue>
    <submit><listeners>
      <listener name="SMTP">
        <ssl latent="Y" mandatory="N" cert="key" certpass="secret"/>
        <server>
          <transcript maxfile="10M" enabled="Y">%DIRLOG%/transcripts/smtpserver-%DT%.log</transcript>
          <relay_clients>%SYSNAME%/24 | 127.0.0.1</relay_clients>
          <validate_helo direction="forward" dotted="true">N</validate_helo>
          <validate_sender>N</validate_sender>
          <validate_recip/>
          <authtypes>-</authtypes>
          <blacklist enabled="N"><dnslists>bl.example</dnslists></blacklist>
          <remotenets><remotenet ip="%SYSNAME%/24 | 127.0.0.1">
            <sender_deny>.</sender_deny><delay_greet>0</delay_greet>
          </remotenet></remotenets>
        </server>
      </listener>
    </listeners></submit>
    <deliver>
      <relays><relay address="smart"><auth enabled="N"><password>secret</password></auth></relay></relays>
      <audit rot="monthly">%DIRLOG%/audit/Y%Y%/M%M%-delivered-%DT%.log</audit>
      <client><transcript enabled="N"/></client>
    </deliver>
    <report><delay_start>1m</delay_start><audit>%DIRLOG%/bounced-%DT%.log</audit></report>
  </mta>
  <imap><server><listeners><listener name="IMAP"/></listeners></server></imap>
  <pop3server/>
  <pop3download><clients><client localuser="a"/></clients></pop3download>
</mailserver>"""


@pytest.mark.parametrize("name", ["incoming", "mixed"])
def test_a_file_that_ran_mailismus_loads(name: str) -> None:
    result = load(DATA / f"{name}.xml", var=VAR, hostname=HOST)
    settings = result.settings
    assert settings.application.announcehost == "mailismus.example.net"
    assert settings.deliver.relays[0].address.port == 2602
    assert settings.submit.listeners[0].port == 2601
    ignored = [each for each in result.warnings if each.text.startswith("ignored")]
    assert [(warning.line, warning.path) for warning in ignored] == [
        (12, "mta/deliver/delay_start"),
        (17, "mta/report/delay_start"),
    ]


def test_every_mailismus_block_loads_or_is_named_as_ignored() -> None:
    ignored = [each for each in loaded(EVERYTHING).warnings if "left out: here" not in each.text]
    assert [(warning.line, bare(warning.path)) for warning in ignored] == [
        (2, "application/database"),
        (3, "directory"),
        (4, "message_store"),
        (8, "mta/submit/listeners/listener@interface"),
        (9, "mta/submit/listeners/listener/ssl@cert"),
        (9, "mta/submit/listeners/listener/ssl@certfile"),
        (9, "mta/submit/listeners/listener/ssl@certpass"),
        (11, "mta/submit/listeners/listener/server/transcript"),
        (29, "mta/report/delay_start"),
        (31, "imap"),
        (32, "pop3server"),
        (33, "pop3download"),
    ]


def test_remarks_never_show_a_password() -> None:
    asked = EVERYTHING.replace('<auth enabled="N">', '<auth enabled="Y">').replace('"N" cert', '"Y" cert')
    asked = asked.replace("<password>", "<pasword>secret</pasword><password>")
    remarks = [*errors(asked), *loaded(EVERYTHING).warnings]
    assert {bare(remark.path) for remark in remarks} > {
        "mta/deliver/relays/relay/auth/pasword",
        "mta/submit/listeners/listener/ssl@certfile",
    }
    assert not [remark for remark in remarks if "secret" in str(remark)]


@pytest.mark.parametrize("path", NOT_YET_RESTRICTING)
def test_what_restricts_and_has_no_effect_is_an_error(path: str) -> None:
    found = errors(document(path, TEXTS.get(path, "Y")))
    assert [(error.line, bare(error.path)) for error in found] == [(1, path)]
    assert NOT_YET_RESTRICTING[path] in str(found[0])


@pytest.mark.parametrize("path", NOT_YET_RESTRICTING)
def test_what_restricts_nothing_is_not_an_error(path: str) -> None:
    assert not errors(document(path, "-"))


@pytest.mark.parametrize("path", sorted(set(NO_EFFECT) - BY_CONTENT))
def test_what_has_no_effect_is_one_warning(path: str) -> None:
    result = loaded(document(path, TEXTS.get(path, "5m")))
    named = [warning for warning in result.warnings if bare(warning.path) == path]
    assert [(warning.line, warning.text) for warning in named] == [(1, f"ignored: {NO_EFFECT[path]}")]


@pytest.mark.parametrize(
    ("path", "attributes", "refused"),
    [
        ("mta/submit/listeners/listener/server/remotenets/remotenet/authtypes", ' mandatory="Y"', True),
        ("mta/submit/listeners/listener/server/blacklist", "", False),
        ("mta/submit/listeners/listener/server/validate_helo", ' fqdn="Y"', False),
    ],
)
def test_attributes_decide_where_an_element_has_no_text(path: str, attributes: str, refused: bool) -> None:
    found = [bare(error.path) for error in errors(document(path, "", attributes))]
    assert found == ([path] if refused else [])


@pytest.mark.parametrize(("enabled", "refused"), [("Y", True), ("N", False)])
def test_lists_that_a_blacklist_may_ask_are_refused_where_it_is_on(enabled: str, refused: bool) -> None:
    path = "mta/submit/listeners/listener/server/blacklist"
    inside = "<dnslists>bl.example</dnslists>"
    found = [bare(error.path) for error in errors(document(path, inside, f' enabled="{enabled}"'))]
    assert found == ([f"{path}/dnslists"] if refused else [])


@pytest.mark.parametrize(
    ("path", "inside"), [("imap/server@listed", "<server listed='Y'/>"), ("imap@listed", "")]
)
def test_attributes_inside_what_is_ignored_are_looked_at(
    path: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NOT_YET_RESTRICTING, path, "who may read")
    [error] = errors(document("imap", inside, " listed='Y'"))
    assert (error.path, "who may read" in error.text) == (path, True)


def test_a_default_that_is_spelled_out_is_no_remark() -> None:
    assert not [
        each for each in loaded(document("ops/events/maxage", "30d")).warnings if "maxage" in each.path
    ]
