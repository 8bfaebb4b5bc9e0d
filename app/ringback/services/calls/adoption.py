"""Adoption: a task that exists at an upstream becomes a call, which follows the task to its end.

If all principals share Ringback's credentials for an upstream, a client who knows a task's id could read another principal's
task. Therefore a task that a call of another principal follows, or has followed, is not adopted: the response is the same as
for an unknown task. If the configuration has several names for the server, calls at each of them count. Expired and erased
calls count until their tombstones are removed. With credentials for each principal, each has an account of its own, which may
have equal task ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ringback.domain.call import Call, Handle, ServerFingerprint, count_argument_bytes
from ringback.domain.call_rows import hash_task
from ringback.domain.errors import IdempotencyConflict, NotFound
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.services.access.api_keys import require_held_key
from ringback.services.calls.new_calls import CallRequest, NewCallWriter, StartedCall, log_started_calls
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.registrations import BuiltWebhook
from ringback.telemetry.spans import link_current_span

UNKNOWN_TOOL: Final = "(unknown)"
"""A task does not name its tool. No tool has this name, because MCP allows only letters, digits and `_-./`."""


class TaskLookup(Protocol):
    """Finds tasks of upstreams."""

    async def find_task(
        self, upstream: str, task_id: str, *, principal: Principal, visible_upstreams: frozenset[str] | None
    ) -> Handle | None:
        """Return the handle with which a call follows this task; None if the upstream does not know the task.

        Raises `UnknownUpstream` as `ToolCatalog.check_call` does, `InvalidRequest` for an upstream without tasks, and
        `Unavailable` if the upstream does not respond.
        """
        ...

    def list_shared_names(self, upstream: str, server_fingerprint: ServerFingerprint | None) -> Sequence[str]:
        """The upstream and all other names of the server at which principals share an account, in alphabetical order.

        Empty if each principal has an account of its own at the upstream.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptTaskRequest(CallRequest):
    task_id: str
    tool: str = UNKNOWN_TOOL

    def compute_hash(self) -> str:
        return self.hash_with_arguments({"task_id": self.task_id})


class TaskAdoption:
    def __init__(
        self,
        *,
        store: Store,
        tasks: TaskLookup,
        new_calls: NewCallWriter,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._new_calls = new_calls
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def adopt_task(self, caller: Caller, request: AdoptTaskRequest) -> StartedCall:
        """Follow the task from now on. Adopting it again returns the same call in its current state.

        Raises `NotFound` for a task that the upstream does not know, or that another principal's call follows.
        """
        request.require_allowed(caller, Scope.ADOPT)
        request.require_valid_timeout()
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)
        # Always query the upstream, so that the response time does not show whether a foreign task exists.
        handle = await self._tasks.find_task(
            request.upstream, request.task_id, principal=caller.principal, visible_upstreams=caller.upstreams
        )
        callback = await self._new_calls.prepare_callback(caller, request)
        started = await self._store.write_for(
            caller.principal,
            lambda tx: self._insert_call(tx, caller, request, handle, callback=callback),
        )
        log_started_calls([started])
        link_current_span(started.call.id, started.call.traceparent)
        return started

    async def _insert_call(
        self,
        tx: Transaction,
        caller: Caller,
        request: AdoptTaskRequest,
        handle: Handle | None,
        *,
        callback: BuiltWebhook | None,
    ) -> StartedCall:
        names = self._tasks.list_shared_names(request.upstream, None if handle is None else handle.server_fingerprint)
        existing, is_foreign = await _find_followers(tx, caller.principal, request, names)
        if existing is not None:
            _require_same_request(existing, request)
            return await self._new_calls.build_known_call(tx, existing, request)
        if handle is None or is_foreign:
            raise NotFound("This upstream has no task of yours with this id.")
        await require_held_key(tx, caller)
        now = tx.now()
        call = self._new_calls.build_call(
            caller.principal,
            request,
            now=now,
            arguments={},
            request_hash=request.compute_hash(),
            handle=handle,
            accepts_input=True,  # otherwise the runner would cancel the task at its first question, and the client needs it
            dispatched_at=now,
            runs=1,
        )
        argument_bytes = count_argument_bytes(call.arguments or {}, call.meta)
        await self._quotas.require_call_quota(tx, caller.principal, argument_bytes=argument_bytes)
        secret = await self._new_calls.insert_callback(tx, call, callback)
        await tx.calls.insert(call)
        tx.notify(CALL_QUEUED_TOPIC)
        return await self._new_calls.build_started_call(tx, call, is_new=True, secret=secret)


async def _find_followers(
    tx: Transaction, principal: Principal, request: AdoptTaskRequest, names: Sequence[str]
) -> tuple[Call | None, bool]:
    """The principal's own call of this task at the upstream, and whether a call of another principal follows or followed it.

    `names` are those of `list_shared_names`; units lock the task in their order.
    """
    upstream, task_id = request.upstream, request.task_id
    if not names:
        return await tx.call_queue.find_by_task(upstream, task_id, principal=principal, lock=True), False
    found = {name: await tx.call_queue.find_by_task(name, task_id, lock=True) for name in names}
    if (own := found[upstream]) is not None and own.principal == principal:
        return own, False
    is_foreign = any(each is not None and each.principal != principal for each in found.values())
    for name in names:
        is_foreign = is_foreign or await tx.tombstones.has_task_of_another(hash_task(name, task_id), principal)
    return None, is_foreign


def _require_same_request(call: Call, request: AdoptTaskRequest) -> None:
    if request.callback is not None and call.request_hash != request.compute_hash():
        raise IdempotencyConflict(
            "A call of yours follows this task already, without this callback. Register a webhook for it: POST /v1/webhooks "
            "with its call_id.",
            call_id=call.id,
        )
