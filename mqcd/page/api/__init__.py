"""The HTTP API: the calls of the control socket under /v1, for holders of tokens.

`calls` says which calls are offered, and to whom; `proxy` passes them on.
"""

from mqcd.page.api.calls import Calls
from mqcd.page.api.routes import routes

__all__ = ["Calls", "routes"]
