"""How the rules that end a dialogue end it: outputs after which nothing is answered. Pure."""

from mqcd.sink.outputs import Close, Flood, Output, Send, Silence
from mqcd.sink.rules import Answer, Drop, Endless, Garbage, Stall

GARBAGE = b"\x00\xff<html>\x1b[2J 250 is no reply\r\nnor is this\r\n"
"""Neither digits nor UTF-8 at its start, a control sequence, and digits where none belong."""
# One write's worth: the fewer, the sooner a client's limit on lines or octets is met.
_LINES = b"250-one line more\r\n" * 256


def ending(fault: Stall | Drop | Garbage | Endless | Answer) -> tuple[Output, ...]:
    """What is done at the fault's stage."""
    match fault:
        case Drop() | Answer():
            return (Close(),)
        case Stall():
            return (Silence(reading=True),)
        case Garbage():
            return (Send(GARBAGE), Silence(reading=True))
        case Endless():
            return (Flood(_LINES),)
