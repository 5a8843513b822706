"""The configuration in the README loads, and no page has a dangling link."""

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


def test_links_lead_somewhere() -> None:
    dangling = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert dangling == []
