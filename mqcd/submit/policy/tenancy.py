"""Which tenant a message belongs to: its user, what a header field names, or its listener. Pure.

Settings read: tenant, tenant_header.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqcd.config.settings import ServerSettings, TenantBy

_MAX_NAME = 128
"""Characters of a tenant's name, which a message may choose."""


class Tenancy:
    """Names the tenants of one listener's mail."""

    def __init__(self, settings: ServerSettings) -> None:
        self._by = settings.tenant
        self.header = settings.tenant_header.lower() if settings.tenant is TenantBy.HEADER else ""
        """The header field that names a message's tenant, in lower case; "" = none does."""

    def name(self, user: str, named: Sequence[str] = ()) -> str:
        """The tenant that the record has to name; "" = nobody, or the listener, which it names already.

        `named`: the values of `header`.
        """
        if self._by is TenantBy.USER:
            return user
        return named[0][:_MAX_NAME] if self.header and named else ""

    def with_listener(self, name: str, listener: str) -> str:
        """The tenant that quotas count, of what `name` gives."""
        return listener if self._by is TenantBy.LISTENER else name
