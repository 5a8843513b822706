"""What `pipeline ledger` asks of another store than the clustered-file queue before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.cli.options import Place
from mqcd.cli.pipeline.commands import _moment
from mqcd.core.errors import ConfigError

CONF = """<mailserver>
  <application><announcehost>mx.test</announcehost></application>
  <mta><queue>
    <store class="{kind}"><password_file>no-such-file</password_file></store>
  </queue></mta>
</mailserver>
"""


def place_of(directory: Path, kind: str) -> Place:
    conf = directory / "mqcd.xml"
    conf.write_text(CONF.format(kind=kind))
    return Place(conf, directory / "var")


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_password_that_the_server_alone_may_read_is_not_read(tmp_path: Path, kind: str) -> None:
    assert _moment(place_of(tmp_path, kind)) is not None


def test_a_store_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing"):
        _moment(place_of(tmp_path, "nothing"))
