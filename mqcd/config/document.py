"""XML octets -> plain nodes. The one module that knows lxml.

Guarantees: nothing outside the octets is ever read (no network, no external DTD, no file), no entity is
ever replaced, and a document that declares any is refused. Failures: `BadDocument`, with the line.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from lxml import etree

from mqcd.core.errors import ConfigError
from mqcd.core.value import value

_SAFELY: dict[str, Any] = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "huge_tree": False,
    "remove_comments": True,
    "remove_pis": True,
}
"""What keeps a parser to the octets that it is given."""
_MOST_ATTRIBUTES = 100


class BadDocument(ConfigError):
    """The octets are no XML document that is taken here; `line` says where, 1 if the parser does not."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


@value
class Node:
    """One element: its name, the line that its tag ends on, its attributes, own text and children."""

    name: str
    line: int
    attributes: dict[str, str]
    text: str
    children: "tuple[Node, ...]"


def parse_document(octets: bytes) -> Node:
    """The root element of a document. Raises BadDocument."""
    parser = etree.XMLParser(**_SAFELY)
    try:
        root = etree.fromstring(octets, parser)
    except etree.XMLSyntaxError as error:
        raise _malformed(error) from None
    _refuse_declarations(root.getroottree().docinfo)
    return _node(root)


@value
class Tag:
    """The begin of one element, as it comes by."""

    name: str
    line: int
    depth: int
    """0 for the root."""
    attributes: dict[str, str]


def each_tag(file: BinaryIO) -> Iterator[Tag]:
    """Each element of a document that may be long, in its order, none kept. Raises BadDocument, OSError."""
    walk = etree.iterparse(file, events=("start", "end"), **_SAFELY)
    depth = 0
    try:
        for event, element in walk:
            if event == "start":
                if depth == 0:
                    _refuse_declarations(element.getroottree().docinfo)
                attributes = {str(name): str(value) for name, value in element.attrib.items()}
                line = element.sourceline or 1
                yield Tag(name=str(element.tag), line=line, depth=depth, attributes=attributes)
                depth += 1
                continue
            depth -= 1
            parent = element.getparent()
            if parent is not None:
                parent.remove(element)
    except etree.XMLSyntaxError as error:
        raise _malformed(error) from None


def _malformed(error: etree.XMLSyntaxError) -> BadDocument:
    return BadDocument(error.position[0] or 1, f"not well-formed XML: {error.msg}")


def _refuse_declarations(info: etree.DocInfo) -> None:
    """A bare DOCTYPE is harmless; one that declares or fetches is an attack or a misunderstanding."""
    declared = info.internalDTD is not None and any(info.internalDTD.iterentities())
    if declared or info.system_url or info.public_id:
        text = "a DOCTYPE with entities or an external DTD is not taken: remove it from the file"
        raise BadDocument(1, text)


def _node(element: etree._Element) -> Node:
    attributes = element.attrib
    # lxml finds each of them from the first on: a hundred thousand take minutes.
    if len(attributes) > _MOST_ATTRIBUTES:
        raise BadDocument(element.sourceline or 1, f"<{element.tag!s}> has {len(attributes)} attributes")
    children = [*element]
    texts = [element.text, *(child.tail for child in children)]
    return Node(
        name=str(element.tag),
        line=element.sourceline or 1,
        attributes={str(name): str(value) for name, value in attributes.items()},
        text=" ".join(text.strip() for text in texts if text and text.strip()),
        children=tuple(_node(child) for child in children if isinstance(child.tag, str)),
    )
