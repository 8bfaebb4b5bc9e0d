"""Adoption: a task that somebody already started upstream becomes a call, which follows it to its end.

Whoever knows a task's id may have it looked at upstream with Ringback's credentials, which all principals share. So what a call
of another principal follows, or once followed, is not adopted: it looks like a task that does not exist.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.call import Call, Handle, compute_request_hash
from ringback.domain.clock import seconds
from ringback.domain.errors import IdempotencyConflict, NotFound
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.signals import CALL_QUEUED_TOPIC
from ringback.domain.webhook import Webhook
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.services.calls import TIMEOUT_SECONDS_DEFAULT, check_timeout
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaEnforcer
from ringback.services.registrations import WebhookRegistration, WebhookRegistrations
from ringback.services.started_call import StartedCall, build_started_call

UNKNOWN_TOOL: Final = "(unknown)"
"""A task does not say which tool it came from. No tool has such a name: MCP allows letters, digits and `_-./`."""


class TaskLookup(Protocol):
    """Which tasks there are upstream."""

    async def find_task(
        self, upstream: str, task_id: str, *, visible_upstreams: frozenset[str] | None
    ) -> Handle | None:
        """What a call needs to follow this task; None when the upstream does not know it.

        Raises `UnknownUpstream` as `Catalog.check`, `InvalidRequest` for an upstream without tasks, `Unavailable` for one that
        does not tell now.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptTaskRequest:
    """The task to be followed, and what its adopter knows of it."""

    upstream: str
    task_id: str
    tool: str = UNKNOWN_TOOL
    client_session_id: str | None = None
    correlation_id: str | None = None
    callback: WebhookRegistration | None = None
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT

    def compute_hash(self) -> str:
        return compute_request_hash(
            upstream=self.upstream,
            tool=self.tool,
            arguments={"task_id": self.task_id},
            callback_url=self.callback.url if self.callback else None,
        )


class TaskAdoption:
    def __init__(
        self,
        *,
        store: Store,
        ids: IdGenerator,
        tasks: TaskLookup,
        tokens: CallResumeTokens,
        registrations: WebhookRegistrations,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._ids = ids
        self._tasks = tasks
        self._tokens = tokens
        self._registrations = registrations
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def adopt_task(self, caller: Caller, request: AdoptTaskRequest) -> StartedCall:
        """Follow the task from now on; the same task again gives the same call, whatever its state by then.

        Raises `NotFound` for a task that the upstream does not know, or that is another principal's.
        """
        caller.require_scope(Scope.ADOPT)
        if request.callback is not None:
            caller.require_scope(Scope.WEBHOOKS)
        check_timeout(request.timeout_seconds)
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal)
        # Asked in any case, so that a foreign task takes as long to refuse as one that does not exist.
        handle = await self._tasks.find_task(request.upstream, request.task_id, visible_upstreams=caller.upstreams)
        secret, callback = await self._registrations.prepare_callback(caller, request.callback)
        return await self._store.write(
            lambda tx: self._insert_call(tx, caller.principal, request, handle, callback=callback, secret=secret)
        )

    async def _insert_call(
        self,
        tx: Transaction,
        principal: Principal,
        request: AdoptTaskRequest,
        handle: Handle | None,
        *,
        callback: Webhook | None,
        secret: str | None,
    ) -> StartedCall:
        existing = await tx.call_queue.find_by_task(request.upstream, request.task_id)
        if existing is not None and existing.principal == principal:
            _require_same_request(existing, request)
            return await build_started_call(tx, self._tokens, existing, created=False, secret=None)
        if existing is not None or handle is None:
            raise NotFound("This upstream has no task of yours with this id.")
        await self._quotas.require_call_quota(tx, principal)
        call = self._new_call(principal, request, handle, now=tx.now())
        await self._registrations.insert_callback(tx, callback, call)  # first, because it may be refused
        await tx.calls.insert(call)
        tx.notify(CALL_QUEUED_TOPIC)
        return await build_started_call(tx, self._tokens, call, created=True, secret=secret)

    def _new_call(self, principal: Principal, request: AdoptTaskRequest, handle: Handle, *, now: datetime) -> Call:
        return Call(
            id=self._ids.new_call_id(),
            principal=principal,
            upstream=request.upstream,
            tool=request.tool,
            arguments={},
            client_session_id=request.client_session_id,
            correlation_id=request.correlation_id,
            request_hash=request.compute_hash(),
            handle=handle,
            accepts_input=True,  # otherwise a question of the task would have it cancelled, and it is somebody's
            dispatched_at=now,
            runs=1,
            created_at=now,
            updated_at=now,
            deadline_at=now + seconds(request.timeout_seconds),
        )


def _require_same_request(call: Call, request: AdoptTaskRequest) -> None:
    if request.callback is not None and call.request_hash != request.compute_hash():
        raise IdempotencyConflict(
            "A call of yours follows this task already, without this callback. Register a webhook for it: POST /v1/webhooks "
            "with its call_id.",
            call_id=call.id,
        )
