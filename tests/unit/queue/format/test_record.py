"""The record line: what goes in comes out, and what was changed is noticed."""

from __future__ import annotations

import zlib
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcd.core.address import check_address
from mqcd.core.errors import DecodeError
from mqcd.core.model import (
    Action,
    Amended,
    Area,
    Attempt,
    Batch,
    Body,
    Bounced,
    Deferred,
    Envelope,
    Phase,
    Recipient,
)
from mqcd.core.queueing.transition import after
from mqcd.core.smtp.marks import marks_of
from mqcd.core.smtp.reply import Reply
from mqcd.queue.format import record
from mqcd.submit.esmtp.parameters import DSN_PARAMETERS, parse_mail, parse_rcpt
from tests.unit.queue.support import addresses, recipient, recipients, texts


@given(recipients)
def test_a_record_comes_back_as_it_was(given_record: Recipient) -> None:
    line = record.encode(given_record)
    assert record.decode(line) == given_record
    assert record.encode(record.decode(line)) == line


@given(addresses)
def test_every_legal_address_fits(address: str) -> None:
    with suppress(DecodeError):
        check_address(address)
        given_record = recipient(address=address, sender=address)
        assert record.decode(record.encode(given_record)) == given_record


@pytest.mark.parametrize(
    "address",
    [
        "a|b@example.org",
        "100%25@example.org",
        '"a b|c%0A"@example.org',
        '"\\"@\\\\"@example.org',
        "грета@example.org",
        "user@bücher.example",
        "user@[192.0.2.1]",
        "user@[IPv6:2001:db8::1]",
        "postmaster",
    ],
)
def test_awkward_addresses(address: str) -> None:
    given_record = recipient(address=address)
    line = record.encode(given_record)
    assert line.count(b"\n") == 1
    assert record.decode(line).address == address


@given(texts)
def test_a_field_is_on_one_line_and_without_bars(text: str) -> None:
    field = record.escape(text)
    assert not set(field) & {"|", "\n", "\r", "\0"}
    assert record.unescape(field) == text


def test_a_record_without_a_reply_has_no_trace_of_one() -> None:
    fresh = recipient(code=0, status="", reply="", remote="", attempts=0, area=Area.INCOMING, due=0)
    assert record.decode(record.encode(fresh)) == fresh


def test_the_shared_part_may_be_given() -> None:
    given_record = recipient()
    part = record.encode_envelope(given_record.envelope)
    assert record.encode(given_record, part) == record.encode(given_record)


@given(recipients, st.data())
def test_a_changed_octet_is_noticed(given_record: Recipient, data: st.DataObject) -> None:
    line = bytearray(record.encode(given_record))
    # The line feed is not the record's: what lies before it is.
    at = data.draw(st.integers(0, len(line) - 2))
    line[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DecodeError):
        record.decode(bytes(line))


def test_a_line_cut_anywhere_is_noticed() -> None:
    line = record.encode(recipient())
    for length in range(len(line) - 1):
        with pytest.raises(DecodeError):
            record.decode(line[:length])
    assert record.decode(line[:-1]) == record.decode(line)


_words = st.one_of(
    st.binary(max_size=6).map(lambda word: word.replace(b"|", b"")),
    st.sampled_from([b"0", b"1", b"i", b"d", b"s", b"8u", b"0000000000000001", b"\xff", b"%zz"]),
)


@given(st.lists(_words, min_size=20, max_size=26))
def test_wrong_fields_with_a_good_checksum_raise_decode_errors(words: list[bytes]) -> None:
    body = b"|".join(words) + b"|"
    line = body + b"%08x\n" % zlib.crc32(body)
    with suppress(DecodeError):
        record.decode(line)
    with suppress(DecodeError):
        record.Glance(line)


@pytest.mark.parametrize("field", range(record.FIELDS - 1))
def test_each_field_that_cannot_be_is_refused(field: int) -> None:
    words = record.check(record.encode(recipient()))
    words[field] = b"\xff"
    body = b"|".join(words[:-1]) + b"|"
    with pytest.raises(DecodeError, match="cannot be"):
        record.decode(body + b"%08x\n" % zlib.crc32(body))


@pytest.mark.parametrize("field", [0, 1, 2, 3, 4, 14])
def test_a_glance_refuses_what_it_cannot_read(field: int) -> None:
    words = record.encode(recipient()).split(b"|")
    words[field] = b"?"
    with pytest.raises(DecodeError):
        record.Glance(b"|".join(words))


@pytest.mark.parametrize("changes", [
    {"reply": "x" * record.MAX_LINE}, {"qid": 1 << 32}, {"qid": -1}, {"due": -1},
])  # fmt: skip
def test_a_line_that_the_journal_cannot_hold_is_not_sound(changes: dict[str, Any]) -> None:
    assert record.sound(record.encode(recipient())).qid == 1
    line = record.encode(recipient(**changes))
    with pytest.raises(DecodeError, match="cannot be"):
        record.sound(line)
    assert record.sound_all([GOOD, line[:-1], GOOD]) == [GOOD[:-8].decode(), None, GOOD[:-8].decode()]


@pytest.mark.parametrize("mark", [b"\xff", b"%", b"|", b"\xc3\xa9"])
def test_no_line_of_what_a_door_takes_is_too_long(mark: bytes) -> None:
    """Each field as long as it can be, of the octets that are the longest in a record."""
    marks = marks_of(b"".join(b"%s: %s\r\n" % (name, mark * 300) for name in MARKS))
    address = check_address("|" * 64 + "@[IPv6:fe80::1%" + "|" * 239 + "]")
    envelope = Envelope(
        spid=(1 << 64) - 1,
        sender=address,
        received=LATEST,
        body=Body.EIGHT,
        smtputf8=True,
        zone="z" * 64,
        listener="l" * 64,
        client="ffff:" * 7 + "ffff%" + "i" * 15,
        user="\U0001f600" * 128,
        tls="TLSv1.3",
        dsn=parse_mail(f"RET=FULL ENVID={'|' * 100}", DSN_PARAMETERS).dsn,
        release=LATEST,
        priority=-9,
        labels=marks.labels("\U0001f600" * 128, "h" * 64),
    )
    dsn = parse_rcpt(f"NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;{'|' * 493}", DSN_PARAMETERS)
    new = Recipient(
        envelope=envelope, size=1 << 40, qid=999_999_999, address=address, dsn=dsn, linked=True, warned=True
    )
    attempt = Attempt(destination="", phase=Phase.GREETING, remote_host="\\255" * 250, at=LATEST)
    reply = Reply(code=450, status="4.999.999", text="|" * 1000)
    lines = [record.encode(new), record.encode(_after(new, Bounced(reply=reply, attempt=attempt)))]
    amended = _after(new, Deferred(reply=reply, attempt=attempt, due=LATEST))
    for action, target in ((Action.REDIRECT, "r" * 255 + ":65535"), (Action.REDIRECT, address), REMOVED):
        batch = Batch(id=f"{len(lines):0100}", action=action, at=LATEST, by="", target=target, report=True)
        amended = _after(amended, Amended(batch=replace(batch, until=LATEST, reason="|" * 200)))
        lines.append(record.encode(amended))
    assert max(map(len, lines)) <= record.MAX_LINE


MARKS = (b"Message-ID", b"List-ID", b"X-mqcd-Tag")
LATEST = (1 << 53) - 1
REMOVED = Action.REMOVE, ""


def _after(given_record: Recipient, verdict: Bounced | Deferred | Amended) -> Recipient:
    following = after(given_record, verdict)
    assert following is not None
    return following


@given(recipients)
def test_a_glance_sees_what_decoding_sees(given_record: Recipient) -> None:
    glance = record.Glance(record.encode(given_record))
    assert (glance.spid, glance.qid) == given_record.key
    assert glance.area is given_record.area
    assert (glance.due, glance.size) == (given_record.due, given_record.size)
    assert glance.received == given_record.envelope.received


@pytest.mark.parametrize(
    "address",
    ["Someone@Example.ORG", "a@b\u00fccher.example", '"a@b|c"@d.example.', "a@b%c|d", "postmaster", ""],
)
def test_a_glance_sees_the_domain_in_comparable_form(address: str) -> None:
    given_record = recipient(address=address)
    assert record.Glance(record.encode(given_record)).domain == given_record.domain


def test_records_of_one_message_share_their_envelope() -> None:
    first = recipient()
    second = replace(first, qid=2, address="other@example.org")
    one, two = record.decode(record.encode(first)), record.decode(record.encode(second))
    assert one.envelope is two.envelope


@given(recipients)
def test_the_fields_of_a_line_are_what_decoding_sees(given_record: Recipient) -> None:
    fields = record.fields(record.verify(record.encode(given_record)))
    envelope = given_record.envelope
    assert (int(fields.spid, 16), int(fields.qid)) == given_record.key
    assert record.area_of(fields.area) is given_record.area
    assert (int(fields.due), int(fields.size)) == (given_record.due, given_record.size)
    assert (int(fields.attempts), int(fields.unknowns)) == (given_record.attempts, given_record.unknowns)
    assert (int(fields.code), fields.status) == (given_record.code, given_record.status)
    assert (fields.remote, fields.reply) == (given_record.remote, given_record.reply)
    assert (fields.address, fields.dsn) == (given_record.address, given_record.dsn)
    assert (int(fields.received), fields.sender) == (envelope.received, envelope.sender)
    assert (fields.zone, fields.listener, fields.client) == (
        envelope.zone,
        envelope.listener,
        envelope.client,
    )
    assert (fields.user, fields.tls) == (envelope.user, envelope.tls)
    assert fields.message_dsn.startswith(envelope.dsn)


def test_a_message_without_release_and_priority_says_nothing_of_them() -> None:
    line = record.encode_envelope(Envelope(spid=2, sender="a@b.example", received=5, dsn="RET=HDRS"))
    assert line == "5|s|7||||||RET=HDRS||a@b.example"


def test_release_and_priority_stand_behind_the_parameters() -> None:
    envelope = Envelope(spid=2, sender="", received=5, dsn="ENVID=a", release=7, priority=-3)
    assert record.encode_envelope(envelope) == "5|s|7||||||ENVID=a HOLDUNTIL=7 MT-PRIORITY=-3||"


def test_a_text_with_another_number_of_fields_is_refused() -> None:
    text = record.verify(record.encode(recipient()))
    for wrong in (text + "|", text[text.index("|") + 1 :]):
        with pytest.raises(DecodeError, match="fields, not 26"):
            record.fields(wrong)
        with pytest.raises(DecodeError, match="cannot be"):
            record.parse(wrong)


@given(recipients)
def test_decoding_sets_each_field(given_record: Recipient) -> None:
    decoded = record.decode(record.encode(given_record))
    assert hash(decoded) == hash(given_record)
    assert repr(decoded) == repr(given_record)


def sealed(body: bytes) -> bytes:
    return body + b"%08x" % zlib.crc32(body)


def verified(line: bytes) -> str | None:
    try:
        record.sound(line + b"\n")
        return record.verify(line)
    except DecodeError:
        return None


GOOD = record.encode(recipient(address="грета@bücher.example")).rstrip(b"\n")
BAD = (
    b"",
    b"|",
    b"00000000",
    GOOD[:-1],
    GOOD + b"0",
    GOOD.replace(b"example", b"Example"),
    sealed(b"\xff|"),
    sealed(GOOD[:-8].replace("грета".encode(), b"\xff")),
    sealed(b"7e|")[:-8] + sealed(b"7e|")[-8:].upper(),
)


@given(st.lists(st.sampled_from((GOOD, *BAD))))
def test_many_lines_are_sound_as_each_is(lines: list[bytes]) -> None:
    assert list(record.sound_all(lines)) == [verified(line) for line in lines]


def test_octets_between_two_lines_cannot_make_up_for_each_other() -> None:
    one, two = GOOD[:-1], GOOD[-1:]
    assert list(record.sound_all([one, two, GOOD])) == [None, None, GOOD[:-8].decode()]


@given(recipients)
def test_the_halves_of_a_record_are_its_fields(given_record: Recipient) -> None:
    text = record.verify(record.encode(given_record))
    *own, part = record.halves(text)
    each = record.fields(text)
    assert [*own, *record.shared_fields(part)[len(own) :]] == [*each]


def test_a_record_without_a_shared_part_has_no_halves() -> None:
    with pytest.raises(DecodeError, match="14 fields, not 26"):
        record.halves("|" * 13)


def test_a_decoded_recipient_is_one_value_with_that_encoded() -> None:
    found = record.decode(record.encode(recipient()))
    assert (type(found), type(found.envelope)) == (Recipient, Envelope)
    assert {found, recipient()} == {found}
