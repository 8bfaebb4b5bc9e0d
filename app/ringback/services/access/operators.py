"""Operators: callers with the scope `admin` who read the rows of all principals, act for one of them, or run the service.

A request for other principals' rows names a principal, or `*` for all of them. Keys, the erasure of a principal and upstreams
belong to operators only. Every request of both kinds is written to the log `ringback.audit`, before it is executed: who asked,
for whom, and which operation on which object. A caller without the scope `admin` gets the same refusal for every name, so the
response does not show which principals exist.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ringback.domain.clock import Clock
from ringback.domain.errors import Forbidden, NotFound
from ringback.domain.ids import (
    CallId,
    DeliveryId,
    KeyId,
    PortalLinkId,
    WebhookId,
    is_subscription_id,
    is_well_formed_id,
)
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ALL_PRINCIPALS, Caller, Operator, Principal, Scope
from ringback.telemetry.logs import AUDIT_LOGGER

REPEATED_LINE_SECONDS: Final = 600.0
"""Between two lines about the same read of a page that refreshes itself."""
REPEATED_REQUESTS_MAX: Final = 1_000
"""Such reads that this process remembers; the one that was repeated longest ago is forgotten first."""

audit_log = logging.getLogger(AUDIT_LOGGER)


class Operators:
    def __init__(self, *, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._repeated: dict[_Repeated, float] = {}
        """When each request that pages repeat was written to the log last."""

    def require_admin(
        self, caller: Caller, *, operation: str, principal: str | None = None, target: str | None = None
    ) -> None:
        """Write an operation that only operators may run to the audit log; raise `Forbidden` without the scope `admin`.

        `principal` is the one that the request names, None if it names none. `target` is the id or the name of the object.
        """
        _require_operator(caller, principal, operation=operation, target=target)

    def view_principal(self, caller: Caller, principal: str, *, operation: str, repeats: bool = False) -> Caller:
        """The caller of a list: one principal, or all of them. `repeats` as for `act_for_owner`."""
        self._require_operator(caller, principal, operation=operation, target=None, repeats=repeats)
        if principal == ALL_PRINCIPALS:
            return replace(caller, operator=_operator(caller), sees_all_principals=True)
        return _act_for(caller, Principal(principal))

    async def act_for_owner(
        self, caller: Caller, principal: str, *, operation: str, target: str, repeats: bool = False
    ) -> Caller:
        """The caller of an operation on one object: as the named principal, or as its owner if all are named.

        `repeats`: an open page repeats this read every few seconds, so the audit log has one line for it in ten minutes.
        Raises `NotFound` if all are named and no principal has an object of this id.
        """
        self._require_operator(caller, principal, operation=operation, target=target, repeats=repeats)
        if principal != ALL_PRINCIPALS:
            return _act_for(caller, Principal(principal))
        return _act_for(caller, await self._store.read(lambda tx: _find_owner(tx, target)))

    def _require_operator(
        self, caller: Caller, principal: str, *, operation: str, target: str | None, repeats: bool
    ) -> None:
        key = _Repeated(caller.principal, caller.key_id, principal, operation, target)
        if repeats and Scope.ADMIN in caller.scopes and self._was_logged(key):
            return
        _require_operator(caller, principal, operation=operation, target=target)

    def _was_logged(self, key: "_Repeated") -> bool:
        """Whether the log has a line of this request. Without a recent one, the caller writes it now."""
        now = self._clock.monotonic()
        logged_at = self._repeated.pop(key, None)
        is_recent = logged_at is not None and now - logged_at < REPEATED_LINE_SECONDS
        self._repeated[key] = logged_at if is_recent and logged_at is not None else now
        if len(self._repeated) > REPEATED_REQUESTS_MAX:
            del self._repeated[next(iter(self._repeated))]
        return is_recent


class _Repeated(NamedTuple):
    operator: Principal
    key_id: KeyId | None
    principal: str
    operation: str
    target: str | None


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
