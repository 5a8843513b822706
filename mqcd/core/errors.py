"""The root of mqcd's exceptions, and whose fault each one is.

A remote server's refusal is not among them: it is a value (see `mqcd.core.model`). An exception here
is a fault, and its class names who has to act: the writer of the configuration, the sender of the
octets, the machine that the queue lies on, or the operator who must look at damage.
"""

from __future__ import annotations


class MqcdError(Exception):
    """Root of every error that mqcd raises on purpose. Its text is meant for the reader, whole."""


class IllegalTransition(RuntimeError):
    """An event that a state table does not have: a fault of this program."""


class ConfigError(MqcdError):
    """The configuration is wrong. Fault: its writer. Trying again without a change is useless."""


class DecodeError(MqcdError):
    """Octets do not follow their format. Fault: their writer. The only error of a decoder."""


class StoreUnavailable(MqcdError):
    """The store cannot record anything now: disk full, IO error, stopping. Try again later (4xx)."""


class ContentUnavailable(StoreUnavailable):
    """The octets of one message cannot be had now: missing, or their disk fails. Others may go on."""


class StoreDamaged(MqcdError):
    """What lies on disk contradicts itself. The operator must look: `mqcd fsck` names the places."""


class StoreBusy(MqcdError):
    """Another process owns the store, or a reader's pin has ended. Try again when it is free."""


class NameNotFound(MqcdError):
    """DNS says for certain that there is no such name or record. Permanent (RFC 5321, 5.1)."""


class ResolveFailed(MqcdError):
    """DNS gave no answer that can be relied on: timeout, SERVFAIL. Temporary (RFC 5321, 5.1)."""


class ConnectFailed(MqcdError):
    """A connection could not be opened or broke. Fault: the remote side or the network. Temporary."""


class SourceUnavailable(ConnectFailed):
    """The own address that a connection was to come from cannot be used. Fault: this machine, or the
    configuration; another own address may do."""


class TlsFilesUnusable(ConnectFailed):
    """Our own certificate, its key or the file of trusted certificates cannot be loaded. Fault: the
    configuration; it says nothing of the other side."""


class LocalShortage(ConnectFailed):
    """This machine has no descriptor, port or buffer left for a connection. Fault: this machine; it says
    nothing of the other side."""


class LookupShortage(ResolveFailed):
    """The same for a question to DNS."""
