"""Mail in: listeners, their policy and filters. 250 is sent only once the queue has the message.

A message: `session.session` answers commands (`_step`); where content follows, it begins the task
`session.tasks.content`, which calls `session.intake.take_message`: that reads the content, prepares the
message and commits it to the store (`_commit`).

Imports core, config and net, and of aiosmtpd the names of its handler contract; it knows the queue through
core.ports alone.
"""

from mqcd.submit.door import Door

__all__ = ["Door"]
