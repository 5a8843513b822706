"""The README is what people try first: its configuration loads, and no page links to nowhere."""

import re
from pathlib import Path

from mqcd.config.load import load_text

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def test_its_configuration_loads_without_a_warning(tmp_path: Path) -> None:
    (example,) = re.findall(r"```xml\n(.*?)```", README, re.DOTALL)
    loaded = load_text(
        example.encode(), name="README.md", conf=tmp_path, var=tmp_path / "var", hostname="mx.example.org"
    )
    assert loaded.warnings == ()
    (listener,) = loaded.settings.submit.listeners
    assert (listener.interface, listener.port) == ("127.0.0.1", 2525)
    (relay,) = loaded.settings.deliver.relays
    assert "smtp.example.org" in str(relay.address)


def test_it_gives_two_commands_to_begin_with() -> None:
    begin = README[: README.index("\n## ")]
    commands = re.findall(r"^    (\S.*)$", begin, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].startswith("python3 -m venv .venv && ")
    assert commands[0].endswith("/mqcd demo")
    assert commands[1] == "bash tests/run"
    assert "/tests/run" in (ROOT / ".ci" / "run").read_text().splitlines()[-1]


def test_links_lead_somewhere() -> None:
    dangling = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dangling == []
