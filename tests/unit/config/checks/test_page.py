"""The page's settings: where it runs, and what it needs beyond loopback."""

from __future__ import annotations

import pytest

from mqcd.config.problems import BadConfiguration
from tests.unit.config.samples import loaded


def page(attributes: str) -> str:
    return f"<mailserver><ops><page {attributes}/></ops></mailserver>"


def faults(attributes: str) -> list[str]:
    with pytest.raises(BadConfiguration) as caught:
        loaded(page(attributes))
    return [remark.path for remark in caught.value.remarks]


@pytest.mark.parametrize(
    ("attributes", "runs"),
    [("", False), ('port="9200"', True), ('enabled="N" port="9200"', False), ('enabled="Y"', True)],
)
def test_the_block_alone_enables_it(attributes: str, runs: bool) -> None:
    assert loaded(page(attributes)).settings.ops.page.enabled is runs


def test_other_machines_need_tls() -> None:
    assert faults('interface="192.0.2.1"') == ["ops/page@certfile"]
    assert loaded(page('interface="192.0.2.1" certfile="/c.pem"')).settings.ops.page.enabled
    assert not loaded(page('interface="192.0.2.1" enabled="N"')).settings.ops.page.enabled


def test_open_to_all_is_for_loopback_alone() -> None:
    assert faults('interface="0.0.0.0" certfile="/c.pem" open="Y"') == ["ops/page@open"]
    assert loaded(page('interface="::1" open="Y"')).settings.ops.page.open


def test_a_key_needs_its_certificate() -> None:
    assert faults('keyfile="/k.pem"') == ["ops/page@certfile"]


def test_a_read_only_queue_has_no_page() -> None:
    queue = "<mta><queue><read_only>Y</read_only></queue></mta>"
    text = f'<mailserver>{queue}<ops><page enabled="Y"/></ops></mailserver>'
    assert "ops/page@enabled" in [warning.path for warning in loaded(text).warnings]


def test_a_port_is_taken_once() -> None:
    assert faults('port="9125"') == ["ops/page@port"]
