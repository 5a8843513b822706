"""The wheel: what is in it, and that it works where there is no source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.e2e


def test_the_wheel_brings_its_configuration_files(tmp_path: Path) -> None:
    building = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(building, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("mqcd-*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)

    def ask(code: str, *words: str) -> str:
        asked = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=True,
        )
        return asked.stdout

    def mqcd(*words: str) -> str:
        return ask("import sys; from mqcd.__main__ import main; sys.exit(main())", *words)

    assert ask("import mqcd; print(mqcd.__file__)").startswith(str(installed))
    assert "prometheus/alerts.yml" in mqcd("conf", "--list").split()
    example = tmp_path / "mqcd.xml"
    example.write_text(mqcd("conf"))
    assert "<mailserver>" in mqcd("-c", str(example), "--var", str(tmp_path / "var"), "check")
