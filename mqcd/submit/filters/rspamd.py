"""A filter that asks rspamd about each message, over HTTP (`/checkv2`).

    <filter class="mqcd.submit.filters.rspamd:Rspamd">url=http://127.0.0.1:11333 | timeout=10s</filter>

Of its actions `reject` and `discard` refuse the message (550), `soft reject` and `greylist` too, for now
(451); `add header` adds a header field, `rewrite subject` replaces the subject. The header fields that it
wants to be added or removed (its milter section) are, whatever the action.

A message larger than `maxsize` passes without being asked about. When rspamd does not answer, or not in time,
mail passes (`failopen=Y`, the default) or gets 451; the log says when that begins and ends.

Options: url, timeout, maxsize, failopen, header (the field of `add header`, default `X-Spam: Yes`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from aiosmtpd.smtp import MISSING

from mqcd.config.kinds.fields import YES_NO, Duration, Kind, Line, Size
from mqcd.core.smtp.reply import clean
from mqcd.core.units import MIB
from mqcd.submit.filters.fields import check_name, field, without
from mqcd.submit.filters.http import BadUrl, Service, ServiceFailed
from mqcd.submit.filters.options import Options, read_options

log = logging.getLogger(__name__)

_KINDS: Mapping[str, Kind[Any]] = {
    "url": Line(),
    "timeout": Duration(least=1, most=240_000),
    "maxsize": Size(),
    "failopen": YES_NO,
    "header": Line(),
}
_MAX_TEXT = 400
"""Characters of a reply's text that rspamd chooses."""
_MAX_SAID = 200
_REFUSALS = {
    "reject": ("550 5.7.1", "This message is refused as spam"),
    "discard": ("550 5.7.1", "This message is refused as spam"),
    "soft reject": ("451 4.7.1", "Try again later"),
    "greylist": ("451 4.7.1", "Greylisted, try again later"),
}
_UNAVAILABLE = "451 4.7.1 The content cannot be checked now, try again later"


class Rspamd:
    """One listener's."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:11333",
        timeout: int = 10_000,
        maxsize: int = 20 * MIB,
        failopen: bool = True,
        header: str = "X-Spam: Yes",
    ) -> None:
        """`timeout` in ms. Raises ValueError, BadUrl."""
        self._service = Service(url)
        self._timeout = timeout
        self._maxsize = maxsize
        self._failopen = failopen
        name, _, value = header.partition(":")
        check_name(name.strip())
        self._header = name.strip(), value.strip()
        self._failing = False

    @classmethod
    def from_options(cls, options: Options) -> Rspamd:
        """Raises ValueError for options that cannot be."""
        given: dict[str, Any] = read_options(options, _KINDS)
        try:
            return cls(**given)
        except BadUrl as error:
            raise ValueError(f"option 'url': {error}") from error

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> Any:  # noqa: N802
        """Ask, then refuse or change the message."""
        content: bytes = envelope.content
        if self._maxsize and len(content) > self._maxsize:
            return MISSING
        try:
            verdict = _verdict(
                await self._service.post("/checkv2", _about(session, envelope), content, self._timeout)
            )
        except ServiceFailed as error:
            self._note(error)
            return MISSING if self._failopen else _UNAVAILABLE
        self._note(None)
        action = verdict["action"]
        if action in _REFUSALS:
            return _refusal(action, verdict)
        envelope.content = self._changed(content, action, verdict)
        return MISSING

    def _changed(self, content: bytes, action: str, verdict: Mapping[str, Any]) -> bytes:
        added, removed = _milter(verdict)
        if action == "add header":
            added.append(self._header)
        if action == "rewrite subject" and isinstance(verdict.get("subject"), str):
            removed.add("subject")
            added.append(("Subject", verdict["subject"]))
        if not (added or removed):
            return content
        head = b"".join(_fields(added))
        return head + without(content, removed.__contains__)

    def _note(self, error: ServiceFailed | None) -> None:
        if error is not None and not self._failing:
            what = "mail passes" if self._failopen else "mail has to wait"
            log.error("rspamd cannot be asked, %s: %s", what, error)
        elif error is None and self._failing:
            log.info("rspamd answers again")
        self._failing = error is not None


def _about(session: Any, envelope: Any) -> list[tuple[str, str]]:
    """What rspamd is to know besides the content: its own header names."""
    sender = envelope.mail_from or ""
    about = [("From", "" if sender == "<>" else sender), *(("Rcpt", each) for each in envelope.rcpt_tos)]
    if isinstance(session.peer, tuple):
        about.append(("IP", str(session.peer[0]).removeprefix("::ffff:").partition("%")[0]))
    if session.host_name:
        about.append(("Helo", session.host_name))
    if session.authenticated and session.auth_data is not None:
        about.append(("User", session.auth_data.login.decode("utf-8", "replace")))
    return about


def _verdict(answer: bytes) -> dict[str, Any]:
    try:
        verdict = json.loads(answer)
    except ValueError as error:
        raise ServiceFailed(f"its answer is no JSON: {error}") from error
    if not isinstance(verdict, dict) or not isinstance(verdict.get("action"), str):
        said = verdict.get("error") if isinstance(verdict, dict) else None
        raise ServiceFailed(f"its answer has no action: {clean(str(said), _MAX_SAID)}")
    return verdict


def _refusal(action: str, verdict: Mapping[str, Any]) -> str:
    codes, text = _REFUSALS[action]
    messages = verdict.get("messages")
    said = messages.get("smtp_message") if isinstance(messages, dict) else None
    if isinstance(said, str):
        text = clean(said.encode("ascii", "replace").decode(), _MAX_TEXT) or text
    return f"{codes} {text}"


def _milter(verdict: Mapping[str, Any]) -> tuple[list[tuple[str, str]], set[str]]:
    """The fields to add, and the names in lower case of those to remove."""
    milter = verdict.get("milter")
    added: list[tuple[str, str]] = []
    removed: set[str] = set()
    if not isinstance(milter, dict):
        return added, removed
    names = milter.get("remove_headers")
    if isinstance(names, dict):
        removed.update(name.lower() for name in names)
    fields = milter.get("add_headers")
    for name, values in fields.items() if isinstance(fields, dict) else ():
        for each in values if isinstance(values, list) else [values]:
            value = each.get("value") if isinstance(each, dict) else each
            if isinstance(value, str):
                added.append((name, value))
    return added, removed


def _fields(added: list[tuple[str, str]]) -> Iterator[bytes]:
    for name, value in added:
        try:
            yield field(name, value)
        except ValueError as error:
            log.warning("rspamd: left out: %s", error)
