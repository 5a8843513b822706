"""Mail in: listeners, their policy and filters. 250 is sent only once the queue has the message.

Imports core, config and net, and of aiosmtpd the names of its handler contract; it knows the queue through
core.ports alone.
"""

from mqcd.submit.door import Door

__all__ = ["Door"]
