"""Our own TLS files: what cannot be loaded is an error with its place, at check and at start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqcd.cli.main import main
from mqcd.config.load import load
from mqcd.config.problems import BadConfiguration
from mqcd.daemon.listeners.checks import check_files
from tests.fakes.certificates import Authority

CONF = """<mailserver>
  <application><announcehost>mx.test</announcehost></application>
  <mta><deliver>
    <client>
      <trust file="{trust}"/>
    </client>
    <relays>
      <relay address="a.test" destdomains="a.test"/>
      <relay address="b.test">
        <ssl latent="Y" certfile="{certificate}" keyfile="{key}"/>
      </relay>
    </relays>
  </deliver></mta>
</mailserver>
"""
TRUST, SSL = "5: mta/deliver/client/trust@file", "10: mta/deliver/relays/relay[2]/ssl@"


@pytest.fixture
def signed(tmp_path: Path) -> dict[str, Path]:
    """Files that can be loaded, by the places they stand in."""
    authority = Authority(tmp_path)
    both = authority.sign("mx", "DNS:mx.test")
    return {"trust": authority.certificate, "certificate": both, "key": both}


def conf(directory: Path, files: dict[str, Path]) -> Path:
    path = directory / "mqcd.xml"
    path.write_text(CONF.format_map({"key": "", **files}))
    return path


def problems(path: Path) -> list[str]:
    """What is wrong, without the name of the file."""
    settings = load(path, var=None, hostname="mx.test").settings
    try:
        check_files(settings, path)
    except BadConfiguration as error:
        return [str(remark).removeprefix(f"{path}:") for remark in error.remarks]
    return []


@pytest.mark.needs("openssl")
def test_files_that_load_are_no_problem(tmp_path: Path, signed: dict[str, Path]) -> None:
    assert problems(conf(tmp_path, signed)) == []
    del signed["key"]
    assert problems(conf(tmp_path, signed)) == []


@pytest.mark.needs("openssl")
@pytest.mark.parametrize(
    ("which", "place"), [("trust", TRUST), ("certificate", SSL + "certfile"), ("key", SSL + "keyfile")]
)
def test_each_file_is_named_with_its_place(
    tmp_path: Path, signed: dict[str, Path], which: str, place: str
) -> None:
    text, pipe = tmp_path / "text", tmp_path / "pipe"
    text.write_text("no certificate")
    os.mkfifo(pipe)
    for wrong in (tmp_path / "absent", tmp_path, pipe, text):
        [found] = problems(conf(tmp_path, {**signed, which: wrong}))
        # Whether a key fits is seen where both are loaded.
        expected = place.replace("keyfile", "certfile") if wrong == text else place
        assert found.startswith(f"{expected}: ")
        assert str(wrong) in found


@pytest.mark.needs("openssl")
def test_a_key_of_another_certificate_is_refused(tmp_path: Path, signed: dict[str, Path]) -> None:
    signed["key"] = Authority(tmp_path).sign("other", "DNS:other.test")
    [found] = problems(conf(tmp_path, signed))
    assert found.startswith(f"{SSL}certfile: ")


def test_check_names_all_that_cannot_be_loaded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    absent = tmp_path / "absent.pem"
    path = conf(tmp_path, {"trust": absent, "certificate": absent})
    assert main(["check", "-c", str(path)]) == 1
    said = capfd.readouterr().err
    for place in (TRUST, SSL + "certfile"):
        assert f"{path}:{place}: {absent}" in said
