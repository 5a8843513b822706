"""The key for the event log is read at start, and refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqcd.cli.main import main
from mqcd.config.settings import EventsSettings
from mqcd.core.errors import ConfigError
from mqcd.daemon.hashkey import hash_key

CONF = """<mailserver>
  <ops>
    <events>
      <hashkey file="key"/>
    </events>
  </ops>
</mailserver>
"""


def conf_with_key(directory: Path, octets: bytes | None, mode: int = 0o600) -> Path:
    conf = directory / "mqcd.xml"
    conf.write_text(CONF)
    if octets is not None:
        (directory / "key").write_bytes(octets)
        (directory / "key").chmod(mode)
    return conf


def read(directory: Path, octets: bytes | None, mode: int = 0o600) -> bytes:
    conf = conf_with_key(directory, octets, mode)
    return hash_key(EventsSettings(hashkey=directory / "key"), conf)


def test_its_octets_count_as_they_are(tmp_path: Path) -> None:
    assert read(tmp_path, b"0123456789abcde\n") == b"0123456789abcde\n"


def test_without_a_setting_there_is_none() -> None:
    assert hash_key(EventsSettings()) == b""


@pytest.mark.parametrize(
    ("octets", "mode", "why"),
    [
        (None, 0, "cannot be read: No such file or directory"),
        (b"x" * 15, 0o600, "has 15 octets, at least 16 are needed"),
        (b"x" * 5000, 0o600, "has more than 4096 octets"),
        (b"x" * 16, 0o644, "everybody may read or change"),
        (b"x" * 16, 0o602, "everybody may read or change"),
    ],
)
def test_a_key_that_will_not_do(tmp_path: Path, octets: bytes | None, mode: int, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        read(tmp_path, octets, mode)
    assert str(caught.value).startswith(f"{tmp_path}/mqcd.xml:4: ops/events/hashkey: ")


def test_check_looks_at_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = conf_with_key(tmp_path, b"k" * 16)
    assert main(["-c", str(conf), "check"]) == 0
    told = capsys.readouterr()
    assert "k" * 16 not in told.out + told.err
    assert str(tmp_path / "key") in told.out
    (tmp_path / "key").chmod(0o604)
    assert main(["-c", str(conf), "check"]) == 1
    assert "mqcd.xml:4: ops/events/hashkey: " in capsys.readouterr().err
