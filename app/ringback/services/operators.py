"""Operators: callers with the scope `admin` who read the rows of all principals, act for one of them, or run the service.

A request for other principals' rows names a principal, or `*` for all of them. Keys, the erasure of a principal and upstreams
belong to operators only. Every request of both kinds is written to the log `ringback.audit`, before it is executed: who asked,
for whom, and which operation on which object. A caller without the scope `admin` gets the same refusal for every name, so the
response does not show which principals exist.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from ringback.domain.errors import Forbidden, NotFound
from ringback.domain.ids import CallId, DeliveryId, PortalLinkId, WebhookId, is_subscription_id, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_PRINCIPALS, Caller, Operator, Principal, Scope
from ringback.telemetry import AUDIT_LOGGER

audit_log = logging.getLogger(AUDIT_LOGGER)


class Operators:
    def __init__(self, *, store: Store) -> None:
        self._store = store

    def require_admin(
        self, caller: Caller, *, operation: str, principal: str | None = None, target: str | None = None
    ) -> None:
        """Write an operation that only operators may run to the audit log; raise `Forbidden` without the scope `admin`.

        `principal` is the one that the request names, None if it names none. `target` is the id or the name of the object.
        """
        _require_operator(caller, principal, operation=operation, target=target)

    def view_principal(self, caller: Caller, principal: str, *, operation: str) -> Caller:
        """The caller of a list: one principal, or all of them."""
        _require_operator(caller, principal, operation=operation, target=None)
        if principal == ALL_PRINCIPALS:
            return replace(caller, operator=_operator(caller), sees_all_principals=True)
        return _act_for(caller, Principal(principal))

    async def act_for_owner(self, caller: Caller, principal: str, *, operation: str, target: str) -> Caller:
        """The caller of an operation on one object: as the named principal, or as its owner if all are named.

        Raises `NotFound` if all are named and no principal has an object of this id.
        """
        _require_operator(caller, principal, operation=operation, target=target)
        if principal != ALL_PRINCIPALS:
            return _act_for(caller, Principal(principal))
        return _act_for(caller, await self._store.read(lambda tx: _find_owner(tx, target)))


def _act_for(caller: Caller, principal: Principal) -> Caller:
    return replace(caller, principal=principal, operator=_operator(caller))


def _operator(caller: Caller) -> Operator:
    return Operator(principal=caller.principal, key_id=caller.key_id)


def _require_operator(caller: Caller, principal: str | None, *, operation: str, target: str | None) -> None:
    facts = {
        "operator": caller.principal,
        "key_id": caller.key_id,
        "principal": principal,
        "operation": operation,
        "target": target,
    }
    try:
        caller.require_scope(Scope.ADMIN)
    except Forbidden:
        audit_log.warning("audit.operator_refused", extra=facts)
        raise
    audit_log.info("audit.operator_request", extra=facts)


async def _find_owner(tx: Transaction, target: str) -> Principal:
    for prefix, find in _OWNER_BY_PREFIX.items():
        if is_well_formed_id(prefix, target) and (owner := await find(tx, target)) is not None:
            return owner
    if is_subscription_id(target) and (owner := await _webhook_owner(tx, target)) is not None:
        return owner
    raise NotFound("No principal has an object of this id.")


async def _webhook_owner(tx: Transaction, target: str) -> Principal | None:
    webhook = await tx.webhooks.get(WebhookId(target))
    return None if webhook is None else webhook.principal


async def _delivery_owner(tx: Transaction, target: str) -> Principal | None:
    delivery = await tx.deliveries.get(DeliveryId(target))
    return None if delivery is None else delivery.principal


async def _portal_link_owner(tx: Transaction, target: str) -> Principal | None:
    link = await tx.portal_links.get(PortalLinkId(target))
    return None if link is None else link.principal


async def _call_owner(tx: Transaction, target: str) -> Principal | None:
    call = await tx.calls.get(CallId(target))
    return None if call is None else call.principal


_OWNER_BY_PREFIX: Final[Mapping[str, Callable[[Transaction, str], Awaitable[Principal | None]]]] = {
    "wh": _webhook_owner,
    "dlv": _delivery_owner,
    "call": _call_owner,
    "link": _portal_link_owner,
}
