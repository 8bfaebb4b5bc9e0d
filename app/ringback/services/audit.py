"""The audit log: each change by a person or a client has an entry, in the transaction of the change (`domain.audit`).

An operation that takes several transactions has its entry in the first one that changes anything. Calls that start, run and end
have none: they are objects of their own, with their own log.
"""

from ringback.domain.audit import AUDIT_DETAIL_LENGTH_MAX, AuditEntry
from ringback.domain.cursor import Page
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope, Surface


class AuditLog:
    def __init__(self, *, store: Store) -> None:
        self._store = store

    async def list_entries(self, caller: Caller, *, position: int | None, limit: int) -> Page[AuditEntry, int]:
        """Who changed what the caller owns, newest first. `Operators.view_principal` makes the caller of another list."""
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.audit_entries.list_page(caller.listed_principal, position=position, limit=limit),
        )


async def record_change(
    tx: Transaction,
    caller: Caller | None,
    operation: str,
    target: str | None = None,
    *,
    owner: Principal | None = None,
    detail: str | None = None,
) -> None:
    """Record a change of what `owner` owns; the service owns it if that is None.

    `operation` is its id in the OpenAPI document. `caller` is None for an operator with access to the database.
    """
    actor = None if caller is None else caller.operator or caller
    entry = AuditEntry(
        seq=0,
        at=tx.now(),
        principal=None if actor is None else actor.principal,
        key_id=None if actor is None else actor.key_id,
        surface=Surface.CLI if caller is None else caller.surface,
        operation=operation,
        target=target,
        owner=owner,
        detail=None if detail is None else detail[:AUDIT_DETAIL_LENGTH_MAX],
    )
    await tx.audit_entries.append(entry)


async def record_own_change(
    tx: Transaction, caller: Caller, operation: str, target: str | None = None, *, detail: str | None = None
) -> None:
    """Record a change of what the caller's principal owns. An operator acts for that principal."""
    await record_change(tx, caller, operation, target, owner=caller.principal, detail=detail)
