"""Mail in: listeners and policy. A message is answered with 250 only after the queue has it."""

from mqcd.submit.door import Door

__all__ = ["Door"]
