"""Checks of the demonstration's results, from independent sources. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mqcd.core.value import value
from mqcd.demo.letters import BUSY, REJECTING, SENDER, End, Letter
from mqcd.demo.watching import Story
from mqcd.sink.outputs import Received


@value
class Finding:
    """One thing that was checked."""

    good: bool
    text: str


def ends(stories: Sequence[Story]) -> Finding:
    """Every recipient has come to the end that it should."""
    other = [f"{story.address}: not {story.end.value}" for story in stories if not story.ended]
    if other:
        return Finding(good=False, text="; ".join(other))
    return Finding(good=True, text=f"all {len(stories)} recipients came to the end that they should")


def arrivals(letters: Sequence[Letter], arrived: Sequence[Received]) -> Finding:
    """What was delivered is what was sent, octet for octet, below one Received header of ours."""
    wrong = []
    for letter in letters:
        if letter.end not in (End.DELIVERED, End.RETRIED):
            continue
        for address in letter.recipients:
            copies = [each.content for each in arrived if address in each.recipients]
            if [_below_received(copy) for copy in copies] != [letter.content]:
                wrong.append(address)
    if wrong:
        return Finding(good=False, text=f"not once, or not as it was sent: {', '.join(wrong)}")
    return Finding(good=True, text="each message arrived once, octet for octet, below our Received header")


def _below_received(content: bytes) -> bytes:
    """What follows the first header field, if that is a Received."""
    if not content.startswith(b"Received: "):
        return b""
    end = content.find(b"\r\n")
    while content[end + 2 : end + 3] in (b" ", b"\t"):
        end = content.find(b"\r\n", end + 2)
    return content[end + 2 :]


def reports(arrived: Sequence[Received]) -> Finding:
    """One report came, and it names the refused recipient and no other."""
    found = [each for each in arrived if each.sender == "" and each.recipients == (SENDER,)]
    matching = [each for each in found if REJECTING.encode() in each.content and b"5.1.1" in each.content]
    if len(found) == 1 and len(matching) == 1:
        return Finding(good=True, text="one report came, for the one recipient that was refused for good")
    return Finding(
        good=False, text=f"{len(found)} reports came, {len(matching)} of them on the refused recipient"
    )


def waiting(listed: Sequence[Mapping[str, object]], when: str) -> Finding:
    """Only the one deferred recipient is in the queue."""
    addresses = [str(each["recipient"]) for each in listed]
    if len(addresses) == 1 and addresses[0].endswith(f"@{BUSY}"):
        return Finding(good=True, text=f"one recipient waits in the queue {when}")
    return Finding(good=False, text=f"in the queue {when}: {', '.join(addresses) or 'none'}")


def ledger(metrics: Mapping[str, float]) -> Finding:
    """Accepted = delivered + bounced + queued, by the metrics."""
    accepted, delivered, bounced = (
        int(metrics.get(f"mqcd_recipients_{verb}_total", -1)) for verb in ("accepted", "delivered", "bounced")
    )
    queued = int(sum(n for name, n in metrics.items() if name.startswith("mqcd_queue_recipients{")))
    sign = "=" if accepted == delivered + bounced + queued else "is not"
    text = f"{accepted} accepted {sign} {delivered} delivered + {bounced} bounced + {queued} queued"
    return Finding(good=sign == "=", text=text)
