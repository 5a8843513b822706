"""What one connection of the sink says: replies gathered, slowed and spoiled as rules have it. Pure."""

from collections.abc import Sequence

from mqcd.sink.faults import ending
from mqcd.sink.outputs import Output, Pause, Send, Trickle
from mqcd.sink.rules import Answer, Drip, Fault, Stage


class Voice:
    """Replies to commands that came together are sent together, unless a wait comes between."""

    __slots__ = ("_outputs", "_replies", "ended", "wait")

    def __init__(self, wait_ms: int) -> None:
        self.wait = wait_ms
        """Before each reply, ms, unless it says otherwise."""
        self.ended = False
        """Nothing more is said."""
        self._outputs: list[Output] = []
        self._replies: list[bytes] = []

    def reply(self, reply: bytes, wait_ms: int | None = None) -> None:
        """Reply after `wait_ms`, by default what the transaction or the connection asks for."""
        self.pause(self.wait if wait_ms is None else wait_ms)
        self._replies.append(reply)

    def answer(self, stage: Stage, faults: Sequence[Fault], due: bytes, wait_ms: int | None = None) -> None:
        """The reply that is due, drop by drop if one of these rules says so."""
        fault = first(stage, faults)
        if isinstance(fault, Drip):
            self._flush()
            self._outputs.append(Trickle(due, fault.wait_ms))
        else:
            self.reply(due, wait_ms)

    def misbehaves(self, stage: Stage, faults: Sequence[Fault]) -> bool:
        """Do what one of these rules says for here in place of what is due, if one does."""
        fault = first(stage, faults)
        if fault is None or isinstance(fault, Drip):
            return False
        if isinstance(fault, Answer):
            self.reply(line_of(fault))
        if not isinstance(fault, Answer) or fault.code == 421:
            self.end(*ending(fault))
        return True

    def pause(self, wait_ms: int) -> None:
        """Let time pass before what follows."""
        if wait_ms:
            self._flush()
            self._outputs.append(Pause(wait_ms))

    def do(self, output: Output) -> None:
        """Something else than a reply, in its turn."""
        self._flush()
        self._outputs.append(output)

    def tell(self, output: Output) -> None:
        """Something that sends nothing: it may come before replies that are gathered."""
        self._outputs.append(output)

    def end(self, *last: Output) -> None:
        """Say nothing more after this."""
        self._flush()
        self._outputs += last
        self.ended = True

    def take(self) -> list[Output]:
        """All that is to be done, in order."""
        self._flush()
        outputs, self._outputs = self._outputs, []
        return outputs

    def _flush(self) -> None:
        if self._replies:
            self._outputs.append(Send(b"".join(self._replies)))
            self._replies.clear()


def first(stage: Stage, faults: Sequence[Fault]) -> Fault | None:
    """The first of these rules that acts at this stage."""
    for fault in faults:
        if fault.stage is stage:
            return fault
    return None


def line_of(answer: Answer) -> bytes:
    """The reply that a rule gives, as it is sent."""
    return answer.reply.encode("utf-8", "surrogateescape") + b"\r\n"
