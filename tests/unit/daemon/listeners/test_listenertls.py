"""Certificates of listeners: each with its own, and the place of what cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.config.load import load
from mqcd.config.problems import BadConfiguration
from mqcd.config.settings import SubmitSettings
from mqcd.daemon.listeners.listenertls import ListenersTls
from tests.fakes.certificates import Authority

pytestmark = pytest.mark.needs("openssl")
CONF = """<mailserver><mta><submit><listeners>
  <listener name="a" interface="127.0.0.1" port="2525"/>
  <listener name="b" interface="127.0.0.1" port="2526">
    <ssl latent="N" certfile="{0}"/>
  </listener>
  <listener name="c" interface="127.0.0.1" port="2527">
    <ssl latent="Y" certfile="{1}"/>
  </listener>
</listeners></submit></mta></mailserver>
"""


def settings(directory: Path, *files: Path) -> SubmitSettings:
    (directory / "mqcd.xml").write_text(CONF.format(*files))
    return load(directory / "mqcd.xml", var=None, hostname="mx.test").settings.submit


def test_each_listener_has_its_own(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).sign("mx", "DNS:mx.test")
    submit = settings(tmp_path, certificate, certificate)
    tls = ListenersTls(submit)
    loaded = tls.load(submit)
    assert set(loaded) == {"b", "c"}
    tls.use(loaded)
    assert tls.load(submit) == loaded
    assert tls.of("b") is tls.of("b")
    assert tls.of("b") is not tls.of("c")


def test_every_file_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    good, broken = Authority(tmp_path).sign("mx", "DNS:mx.test"), tmp_path / "broken.pem"
    submit = settings(tmp_path, good, good)
    tls = ListenersTls(submit)
    loaded = tls.load(submit)
    tls.use(loaded)
    broken.write_text("no certificate")
    with pytest.raises(BadConfiguration) as error:
        tls.load(settings(tmp_path, tmp_path / "absent", broken), tmp_path / "mqcd.xml")
    places = [str(remark).partition(f": {tmp_path}/")[0] for remark in error.value.remarks]
    listeners = f"{tmp_path}/mqcd.xml:{{}}: mta/submit/listeners/listener[{{}}]/ssl@certfile"
    assert places == [listeners.format(4, 2), listeners.format(7, 3)]
    assert tls.load(submit) == loaded
