"""A page as a browser takes it apart: its elements and their attributes."""

from __future__ import annotations

from html.parser import HTMLParser


class Seen(HTMLParser):
    """Every element, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of each element of a kind."""
        return [attributes for each, attributes in self.elements if each == tag]

    @property
    def runs(self) -> list[str]:
        """Whatever would run or load what is not the page's own."""
        found = [f"<{tag} {name}>" for tag, each in self.elements for name in each if name.startswith("on")]
        found += [f"<{tag} style>" for tag, each in self.elements if tag == "style" or "style" in each]
        found += [str(each) for each in self.all("script") if not each.get("src", "").startswith("/static/")]
        found += [str(each) for tag in ("img", "iframe", "object", "embed", "base") for each in self.all(tag)]
        links = [
            each.get(name, "") for _, each in self.elements for name in ("href", "action", "src", "hx-get")
        ]
        return found + [link for link in links if link and not link.startswith(("/", "#"))]
