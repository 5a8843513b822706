"""Whose mail a message is: what the door records of its tenant."""

from __future__ import annotations

import pytest

from mqcd.config.settings import TenantBy
from mqcd.core.model import Envelope
from mqcd.submit.policy.tenancy import Tenancy
from tests.unit.submit.support import House, open_house, server, visit


@pytest.mark.parametrize(
    ("by", "header", "recorded", "counted"),
    [
        (TenantBy.USER, "", "ann", "ann"),
        (TenantBy.LISTENER, "", "", "smtp"),
        (TenantBy.HEADER, "X-Tenant", "acme", "acme"),
    ],
)
def test_the_record_names_what_the_listener_does_not(
    by: TenantBy, header: str, recorded: str, counted: str
) -> None:
    tenancy = Tenancy(server(tenant=by, tenant_header=header))
    assert tenancy.header == header.lower()
    name = tenancy.name("ann", ["acme", "other"])
    assert (name, tenancy.with_listener(name, "smtp")) == (recorded, counted)


@pytest.mark.parametrize("inline_max", [65536, 0])
async def test_a_header_names_the_tenant_of_a_record(inline_max: int) -> None:
    ours = House(server(tenant=TenantBy.HEADER, tenant_header="X-Tenant"), inline_max=inline_max)
    async with open_house(ours), visit(ours) as client:
        for header in (b"X-Tenant: the big one\r\n", b""):
            await client.begin()
            await client.send(header + b"\r\nbody\r\n.\r\n")
        tenants = [each.envelope.tenant for each in await ours.queued()]
    assert sorted(tenants) == ["test", "the big one"]


def test_mail_without_a_recorded_tenant_is_of_its_listener() -> None:
    envelope = Envelope(spid=2, sender="", received=1, listener="smtp", labels="tag=x")
    assert envelope.tenant == "smtp"
