"""Where messages go that the command `sink` takes: a directory, standard output, both or neither.

`received` and `refused` are made to be the callbacks of `server.start`. With a store, a message
is written before it is told of; OSError from the store is passed on, and nothing is told.
"""

from collections.abc import Callable

from mqcd.sink import lines
from mqcd.sink.mail import Received, Refused
from mqcd.sink.store import MessageStore


class Outlet:
    """Stores messages and tells of them and of refused recipients.

    `tell` takes whole lines, newline included; `as_json` chooses JSON objects over sentences.
    """

    def __init__(
        self,
        *,
        store: MessageStore | None = None,
        tell: Callable[[str], object] | None = None,
        as_json: bool = False,
    ) -> None:
        self._store = store
        self._tell = tell
        self._as_json = as_json

    def received(self, message: Received) -> None:
        """Keep the message and tell of it. Raises OSError."""
        file = self._store.keep(message) if self._store else None
        if self._tell is None:
            return
        if self._as_json:
            fields = {"event": "message", **lines.message_fields(message, file=file)}
            self._tell(lines.to_line(fields))
        else:
            self._tell(lines.message_sentence(message, file=file))

    def refused(self, refused: Refused) -> None:
        """Tell of a refused recipient."""
        if self._tell is None:
            return
        if self._as_json:
            fields = {"event": "refused", **lines.refused_fields(refused)}
            self._tell(lines.to_line(fields))
        else:
            self._tell(lines.refused_sentence(refused))
