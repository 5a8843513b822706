"""XML octets: what is refused before anything in it is looked at."""

import pathlib

import pytest

from mqcd.config.document import BadDocument, parse_document

BOMB = """<!DOCTYPE mailserver [
<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">
]>
<mailserver><application><announcehost>&d;</announcehost></application></mailserver>"""


def test_an_external_entity_is_refused_and_its_file_not_read(tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    text = f"""<!DOCTYPE mailserver [<!ENTITY x SYSTEM "{secret.as_uri()}">]>
<mailserver><application><announcehost>&x;</announcehost></application></mailserver>"""
    with pytest.raises(BadDocument, match="DOCTYPE with entities") as caught:
        parse_document(text.encode())
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_that_multiply_are_refused(encoding: str) -> None:
    with pytest.raises(BadDocument, match="DOCTYPE with entities"):
        parse_document(BOMB.encode(encoding))


def test_entities_that_multiply_in_an_attribute_are_refused() -> None:
    declared = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 20 if n else "x" * 20}">' for n in range(9))
    text = f'<!DOCTYPE mailserver [{declared}]><mailserver><ops port="&e8;"/></mailserver>'
    with pytest.raises(BadDocument):
        parse_document(text.encode())


def test_a_parameter_entity_is_refused() -> None:
    text = '<!DOCTYPE mailserver [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]><mailserver/>'
    with pytest.raises(BadDocument, match="DOCTYPE with entities"):
        parse_document(text.encode())


def test_an_external_dtd_is_refused() -> None:
    with pytest.raises(BadDocument, match="external DTD"):
        parse_document(b'<!DOCTYPE mailserver SYSTEM "http://127.0.0.1:9/x.dtd"><mailserver/>')


def test_a_bare_doctype_is_harmless() -> None:
    assert parse_document(b"<!DOCTYPE mailserver><mailserver/>").name == "mailserver"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<mailserver>\n<mta>\n</mailserver>", 3),
        ("<mailserver>\n\n<ops port=9125/></mailserver>", 3),
        ("<mailserver>&nothing;</mailserver>", 1),
        ("", 1),
        ("relay_clients = all", 1),
        ("<mailserver/><mailserver/>", 1),
        ("<a>" * 5000, 1),
    ],
)
def test_what_is_not_xml_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(BadDocument, match="not well-formed") as caught:
        parse_document(text.encode())
    assert caught.value.line == line


def test_nodes_carry_text_attributes_and_lines_and_no_comments() -> None:
    node = parse_document(b'<a>\n <!-- x -->\n <b c="d">e<!-- f -->g</b>\n <?php h ?>\n <i/> loose </a>')
    assert (node.name, node.text, node.line) == ("a", "loose", 1)
    assert [child.name for child in node.children] == ["b", "i"]
    assert node.children[0].attributes == {"c": "d"}
    assert node.children[0].text == "eg"
    assert [child.line for child in node.children] == [3, 5]


def test_character_data_and_references_are_text() -> None:
    assert parse_document(b"<a>x &lt; <![CDATA[y & z]]></a>").text == "x < y & z"
