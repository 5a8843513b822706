"""The replies of a session: those to commands that are taken as octets, refusals as values. Pure."""

from __future__ import annotations

from mqcd.core.errors import DecodeError
from mqcd.core.smtp.reply import Reply


def _ok(code: int, status: str, text: str) -> bytes:
    return Reply(code=code, status=status, text=text).encode()


RESET = _ok(250, "2.0.0", "Ok")
SENDER_OK = _ok(250, "2.1.0", "Ok")
RECIPIENT_OK = _ok(250, "2.1.5", "Ok")
GO_AHEAD = _ok(354, "", "End data with <CR><LF>.<CR><LF>")
CANNOT_VERIFY = _ok(252, "2.0.0", "Cannot verify, but will take mail and try")
HELP = _ok(214, "2.0.0", "EHLO HELO MAIL RCPT DATA BDAT RSET NOOP VRFY QUIT HELP")

TLS_READY = _ok(220, "2.0.0", "Ready to start TLS")

NO_PROXY = Reply(code=421, status="4.7.0", text="PROXY is not taken from your address, closing")
NEEDS_TLS = Reply(code=530, status="5.7.0", text="Must issue a STARTTLS command first")
CONTROL_REPLY = Reply(code=500, status="5.5.2", text="Control character in command")
NOT_UTF8 = Reply(code=500, status="5.5.2", text="Command is neither ASCII nor UTF-8")
UNKNOWN = Reply(code=500, status="5.5.1", text="Command not recognised")
TOO_MANY_BAD = Reply(code=421, status="4.7.0", text="Too many bad commands, closing")
TOO_MANY_REFUSED = Reply(code=421, status="4.7.0", text="Too many refused recipients, closing")
TOO_MANY_MESSAGES = Reply(code=421, status="4.7.0", text="Too many messages over one connection, closing")
TOO_MANY_RECIPIENTS = Reply(code=452, status="4.5.3", text="Too many recipients, send the rest separately")
NEED_NAME = Reply(code=501, status="5.5.4", text="Say which host you are")
NO_RECIPIENT = Reply(code=554, status="5.5.1", text="No valid recipients")
BDAT_SYNTAX = Reply(code=501, status="5.5.4", text="Syntax: BDAT octets [LAST], closing")
NO_ARGUMENT = Reply(code=501, status="5.5.4", text="No argument is allowed here")
MAIL_SYNTAX = Reply(code=501, status="5.5.4", text="Syntax: MAIL FROM:<address>")
RCPT_SYNTAX = Reply(code=501, status="5.5.4", text="Syntax: RCPT TO:<address>")
BAD_SENDER = Reply(code=501, status="5.1.7", text="Bad sender address syntax")
BAD_RECIPIENT = Reply(code=501, status="5.1.3", text="Bad recipient address syntax")
NULL_RECIPIENT = Reply(code=501, status="5.1.3", text="The null address takes no mail")
NOT_YOURS = Reply(code=553, status="5.7.1", text="This user may not send with this sender address")
NEEDS_UTF8 = Reply(code=553, status="5.6.7", text="Non-ASCII address needs SMTPUTF8")
FAULT = Reply(code=451, status="4.3.0", text="Local error, try again later")
TOO_LARGE = Reply(code=552, status="5.3.4", text="Message is larger than this server takes")
TOO_EARLY = Reply(code=421, status="4.5.0", text="Content sent ahead of 354, closing")
BEFORE_TLS = Reply(code=421, status="4.7.0", text="Commands sent ahead of TLS, closing")
BEFORE_REVERSAL = Reply(code=421, status="4.5.0", text="Commands sent behind ATRN, closing")
SESSION_OVER = Reply(code=421, status="4.4.2", text="This session has lasted long enough, closing")
FAULT_CLOSING = Reply(code=421, status="4.3.0", text="Local error, closing")


def unreadable(error: DecodeError) -> Reply:
    """To a line that cannot be read."""
    return Reply(code=500, status="5.5.2", text=str(error))
