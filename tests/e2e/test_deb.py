"""The Debian package: built, installed into a tree of its own, run from there, removed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.kit.server import ROOT

pytestmark = [pytest.mark.needs("dpkg-deb", "dpkg"), pytest.mark.slow, pytest.mark.timeout(600)]


def run(*words: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, **(env or {})}, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg wants root")
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs Debian's Python")
def test_a_package_is_built_installed_and_removed(tmp_path: Path) -> None:
    run("bash", ROOT / "conf/packaging/build-deb", tmp_path / "out")
    (package,) = (tmp_path / "out").glob("mqcd_*.deb")
    tree = tmp_path / "tree"
    for name in ("info", "updates"):
        (tree / "var/lib/dpkg" / name).mkdir(parents=True)
    (tree / "var/lib/dpkg/status").touch()
    # Scripts run outside of the tree, which has no shell, and do nothing there.
    dpkg = ("dpkg", f"--root={tree}", "--force-script-chrootless", "--force-depends", f"--log={tmp_path}/log")
    run(*dpkg, "--install", package)
    for name in (
        "lib/systemd/system/mqcd.service",
        "usr/share/man/man1/mqcd-queue-ls.1.gz",
        "etc/mqcd/mqcd.xml",
    ):
        assert (tree / name).is_file()
    python = tree / "usr/lib/mqcd/bin/python3"
    assert run(python, "-I", tree / "usr/bin/mqcd", "--version").startswith("mqcd ")
    conf = str(tree / "etc/mqcd/mqcd.xml")
    assert run(python, "-I", tree / "usr/bin/mqcd", "-c", conf, "--var", tmp_path / "v", "check").startswith(
        "<"
    )
    (tmp_path / "v" / "maildrop").mkdir(parents=True)
    mail = (python, "-I", tree / "usr/sbin/sendmail", "b@example.com")
    subprocess.run(mail, input=b"\nx\n", env={"MQCD_VAR": str(tmp_path / "v")}, check=True)
    assert len(list((tmp_path / "v" / "maildrop").iterdir())) == 1
    run(*dpkg, "--remove", "mqcd")
    assert not (tree / "usr/bin/mqcd").exists()
    assert Path(conf).is_file()
    run(*dpkg, "--purge", "mqcd")
    assert not Path(conf).exists()
