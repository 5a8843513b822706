"""Filters that cannot be made are errors with their place, at check and at start."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.cli.main import main

CONF = """<mailserver>
  <application><announcehost>mx.test</announcehost></application>
  <mta><submit><listeners>
    <listener name="a" port="2601"/>
    <listener name="b" port="0">
      <server>
        <filter class="{name}"/>
      </server>
    </listener>
  </listeners></submit></mta>
</mailserver>
"""
PLACE = "7: mta/submit/listeners/listener[2]/server/filter@class: "


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize("name", ["no_such_module:Class", "tests.fakes.handlers:Demanding"])
def test_a_filter_that_cannot_be_made_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(CONF.format(name=name))
    assert main(["-c", str(conf), "--var", str(tmp_path / "var"), command]) == 1
    found = capfd.readouterr()
    assert f"{conf}:{PLACE}{name} " in found.err + found.out


def test_a_filter_that_can_be_made_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "mqcd.xml"
    conf.write_text(CONF.format(name="aiosmtpd.handlers:Sink"))
    assert main(["-c", str(conf), "check"]) == 0
    assert '<filter class="aiosmtpd.handlers:Sink"></filter>' in capsys.readouterr().out
