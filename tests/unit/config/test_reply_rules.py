"""What reply rules must say, and what they must not."""

import pytest

from mqcd.config.settings import ReplyAction
from mqcd.config.show import as_xml
from mqcd.core.smtp.classes import OutcomeClass
from tests.unit.config.samples import errors, loaded


def document(attributes: str) -> str:
    return f"<mailserver><mta><deliver><rules><rule {attributes}/></rules></deliver></mta></mailserver>"


def test_a_reply_rule_is_read_and_shown() -> None:
    text = 'match="421 *" class="system" destination="*.example" action="slow" for="30m" rate="1/s"'
    settings = loaded(document(text)).settings
    [rule] = settings.deliver.rules
    assert (rule.match, rule.kind, rule.action) == ("421 *", OutcomeClass.SYSTEM, ReplyAction.SLOW)
    assert (rule.destination, rule.span) == ("*.example", 1_800_000)
    assert loaded(as_xml(settings)).settings == settings


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        ('match="4*"', "@action"),
        ('action="drop"', "@action"),
        ('action="suspend"', ""),
        ('action="slow" rate="1/s"', ""),
        ('action="defer" for="1h"', "@for"),
        ('action="suspend" for="1h" rate="1/s"', "@rate"),
        ('action="bounce" maxserverconnections="1"', "@maxserverconnections"),
        ('action="defer" class="spam"', "@class"),
    ],
)
def test_a_reply_rule_without_sense_is_an_error(attributes: str, path: str) -> None:
    [remark] = errors(document(attributes))
    assert remark.path == f"mta/deliver/rules/rule[1]{path}"
