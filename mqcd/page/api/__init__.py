"""The HTTP API: the calls of the control socket under /v1, for holders of tokens.

`rights` says which calls are offered, and to whom; `proxy` passes them on.
"""

from mqcd.page.api.rights import role_of
from mqcd.page.api.routes import routes

__all__ = ["role_of", "routes"]
