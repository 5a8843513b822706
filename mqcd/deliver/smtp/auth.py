"""Logging in to a next hop (RFC 4954): which mechanism, and what is sent in it. Pure.

Mechanisms: CRAM-MD5 (RFC 2195), PLAIN (RFC 4616), LOGIN, EXTERNAL (RFC 4422, appendix A). Without one being
asked for, the first of CRAM-MD5, PLAIN, LOGIN that is offered is used; EXTERNAL, which authenticates by the
client certificate, only where it is configured. All are used over TLS only, unless the login allows
otherwise: PLAIN and LOGIN send the password, CRAM-MD5 sends a hash that allows guessing, EXTERNAL requires
TLS.

Guarantees: the password is in no text that is shown, also not where a server quotes what it was sent.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mqcd.core.smtp.reply import Reply
from mqcd.core.value import value

CRAM_MD5, PLAIN, LOGIN, EXTERNAL = "CRAM-MD5", "PLAIN", "LOGIN", "EXTERNAL"
_PREFERENCE = (CRAM_MD5, PLAIN, LOGIN)
_MAX_COMMAND = 512
"""Octets of a command line that every server takes (RFC 5321, 4.5.3.1.4)."""
_HIDDEN = "(hidden)"
CANCEL = b"*\r\n"
"""Cancels an exchange (RFC 4954, 4)."""


@value
class Login:
    """The credentials for a next hop."""

    username: str
    password: str = field(repr=False)
    mechanism: str = ""
    """The one to use, in upper case; "" = the best that is offered."""
    initial_response: bool = True
    """Send the first answer together with the AUTH command, where the mechanism has one."""
    cleartext: bool = False
    """Log in without TLS as well."""


def choose(login: Login, extensions: Mapping[str, str], secured: bool) -> str | None:
    """The mechanism to use with a server that offers `extensions`; None = there is none."""
    offered = _offered(extensions)
    wanted = (login.mechanism,) if login.mechanism else _PREFERENCE
    if not (secured or login.cleartext):
        return None
    return next((mechanism for mechanism in wanted if mechanism in offered), None)


def why_not(login: Login, extensions: Mapping[str, str], secured: bool) -> str:
    """The reason why `choose` found none, as text."""
    offered = _offered(extensions)
    if not offered:
        return "a login is configured, the next hop offers no AUTH"
    if not secured and choose(login, extensions, True):
        return "login requires TLS"
    wanted = login.mechanism or "a supported mechanism"
    return f"the next hop does not offer {wanted} for AUTH"


def _offered(extensions: Mapping[str, str]) -> set[str]:
    words = extensions.get("AUTH", "").split()
    # From before RFC 2554: AUTH=LOGIN as one word.
    words += [key.removeprefix("AUTH=") for key in extensions if key.startswith("AUTH=")]
    return {word.upper() for word in words if word.isascii()}


def _plain(login: Login) -> bytes:
    return f"\0{login.username}\0{login.password}".encode()


def _external(login: Login) -> bytes:
    return login.username.encode()


_INITIAL = {PLAIN: _plain, EXTERNAL: _external}


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """One try to log in, from AUTH to the server's verdict."""

    _login: Login
    _mechanism: str
    _turns: int = 0
    _cancelled: bool = False

    def command(self) -> bytes:
        line = f"AUTH {self._mechanism}".encode()
        initial = _INITIAL.get(self._mechanism)
        if initial is not None and self._login.initial_response:
            # An empty answer is written "=" here (RFC 4954, 4).
            whole = line + b" " + (base64.b64encode(initial(self._login)) or b"=") + b"\r\n"
            if len(whole) <= _MAX_COMMAND:
                self._turns = 1
                return whole
        return line + b"\r\n"

    def answer(self, challenge: bytes) -> bytes | None:
        """The line that answers a 334; `CANCEL` where there is nothing to say, None after that."""
        if self._cancelled:
            return None
        self._turns += 1
        try:
            said = self._said(base64.b64decode(challenge.strip(), validate=True))
        except binascii.Error:
            said = None
        self._cancelled = said is None
        return CANCEL if said is None else base64.b64encode(said) + b"\r\n"

    def _said(self, asked: bytes) -> bytes | None:
        login, turn = self._login, self._turns
        if self._mechanism == LOGIN and turn <= 2:
            return (login.username if turn == 1 else login.password).encode()
        if turn != 1:
            return None
        if self._mechanism == CRAM_MD5:
            digest = hmac.new(login.password.encode(), asked, "md5").hexdigest()
            return f"{login.username} {digest}".encode()
        initial = _INITIAL.get(self._mechanism)
        return None if initial is None else initial(login)


def hide(login: Login, reply: Reply) -> Reply:
    """`reply` without the password, in whichever form it may have been sent back."""
    password = login.password.encode()
    forms = (password, base64.b64encode(password), base64.b64encode(_plain(login)))
    text = reply.text
    for form in forms:
        if form:
            text = text.replace(form.decode(), _HIDDEN)
    return replace(reply, text=text)
