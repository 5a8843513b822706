"""Preparation of user names and passwords before they are compared (SASLprep, RFC 4013). Pure.

Two ways to type one text (full-width letters, composed accents, other blanks) become the same octets.
"""

from __future__ import annotations

import stringprep
import unicodedata

from mqcd.core.errors import DecodeError

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """The prepared text. Raises DecodeError where it is empty or has characters that are not allowed.

    Code points that Unicode 3.2 does not assign are taken, as in a query: passwords have them today.
    """
    if text.isascii() and text.isprintable() and text:
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.normalize("NFKC", mapped)
    if not prepared:
        raise DecodeError("the text is empty")
    if any(prohibited(char) for char in prepared for prohibited in _PROHIBITED):
        raise DecodeError("the text has a character that is not allowed")
    _check_direction(prepared)
    return prepared


def _check_direction(text: str) -> None:
    """RFC 3454, 6: text from right to left has no letters of the other direction, and begins and ends so."""
    right = [stringprep.in_table_d1(char) for char in text]
    if not any(right):
        return
    if any(map(stringprep.in_table_d2, text)) or not (right[0] and right[-1]):
        raise DecodeError("the text mixes directions of writing")
