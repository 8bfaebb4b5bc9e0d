"""RingbackClient: one method for each operation of the REST API. This module has those that start and change calls."""

import ssl
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from http import HTTPStatus
from typing import Any, Final, Self, Unpack

import httpx

from ringback.client.arguments import (
    check_base_url,
    check_header_value,
    check_mapping,
    is_on_this_machine,
    list_mappings,
)
from ringback.client.call_reads import CallReadMethods, call_path
from ringback.client.erasures import ErasureMethods
from ringback.client.events import EventMethods
from ringback.client.http_clients import HttpClients
from ringback.client.http_transport import UNREAD_STATUSES, ClientClock, HttpTransport, SystemClientClock
from ringback.client.insights import InsightMethods
from ringback.client.keys import KeyMethods
from ringback.client.long_polls import LONG_POLLS_MAX
from ringback.client.models import (
    Answered,
    BatchedCall,
    Call,
    Cancellation,
    Resumed,
    ResumeToken,
    Started,
    StartedBatch,
)
from ringback.client.operations import OperationMethods
from ringback.client.options import AdoptOptions, CallbackOptions, CallOptions, ReportOptions
from ringback.client.portal_links import PortalLinkMethods
from ringback.client.repeatable_starts import RepeatableStart
from ringback.client.resource_client import without_none
from ringback.client.results import ResultMethods
from ringback.client.upstreams import UpstreamMethods
from ringback.client.webhooks import WebhookMethods

REQUEST_TIMEOUT_SECONDS: Final = 30.0
"""For the headers of one response, and then for each 16 KiB of it. A request with `wait_seconds` gets its wait in addition."""
CONNECTION_LIMITS: Final = httpx.Limits(max_connections=2 * LONG_POLLS_MAX, max_keepalive_connections=20)
"""httpx's default is half as many connections, which waiting requests alone would use up."""


class RingbackClient(
    CallReadMethods,
    WebhookMethods,
    EventMethods,
    ResultMethods,
    UpstreamMethods,
    InsightMethods,
    ErasureMethods,
    KeyMethods,
    PortalLinkMethods,
    OperationMethods,
):
    """A typed client of one Ringback. Use it as an async context manager, in one event loop.

    Every method may raise `ConnectionFailed`, `UnexpectedAnswer` or a `Problem`. Methods that read, start, cancel or resume are
    tried up to three times while the connection fails, a proxy cannot reach the service, or the response is 503.

    `principal` is for operators, whose key has the scope `admin`: every request then means this principal's objects, or with
    `*` those of all principals. A method's own `principal` comes first. The service refuses both where an operator may not act
    for others.

    `timeout_seconds` limits the time until a response begins, and then for each 16 KiB of it: one that arrives a byte at a time
    raises `ConnectionFailed`. Waits are added. An event stream ends only after 45 seconds of silence.

    `http` is your own httpx client, which stays open. Up to a hundred waiting requests hold a connection each: give it more.
    Without it the client creates one, on `transport` if that is given. It uses the proxies of the environment (HTTPS_PROXY,
    NO_PROXY, …), unless the service is on this machine.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        http: httpx.AsyncClient | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
        clock: ClientClock | None = None,
        principal: str | None = None,
    ) -> None:
        base_url = check_base_url(base_url)
        clock = clock or SystemClientClock()
        self._owns_http = http is None
        create_http = partial(_make_http_client, base_url, transport) if http is None else lambda: http
        self._http = HttpClients(create_http, are_replaced=http is None and transport is None)
        http_transport = HttpTransport(
            base_url=base_url,
            api_key=api_key,
            http=self._http,
            timeout_seconds=timeout_seconds,
            clock=clock,
            principal=principal,
        )
        super().__init__(http_transport, clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    async def aclose(self) -> None:
        """Close the httpx client, unless it was passed to the constructor."""
        if self._owns_http:
            await self._http.aclose()

    # -- calls --

    async def start_call(
        self,
        upstream: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
        callback: CallbackOptions | None = None,
        wait_seconds: float | None = None,
        not_before: datetime | None = None,
        timeout_seconds: float | None = None,
        accepts_input: bool | None = None,
        rerun_policy: str | None = None,
    ) -> Started:
        """Start a call. Once this returns, the call continues without this process.

        The start is repeated when its response is lost; the idempotency key makes that safe, because the tool runs once. The
        default key covers the repeats of this method. Pass your own, stored before the call, if another process must be able
        to repeat the start. For an hour, a repeated start also returns the generated secret of its callback; if it may be
        repeated later, send a `secret` of your own.
        With `wait_seconds` (at most 45) a call that ends in time is returned with its result.
        With `not_before`, a time with an offset, the call starts then; its `timeout_seconds` count from then.
        `accepts_input` says that you can `answer` the tool's requests for input. `rerun_policy` (never, if_safe, always) says
        whether the tool may run a second time when it is unknown whether it ran.
        """
        start = RepeatableStart(idempotency_key, callback)
        body = {
            "upstream": upstream,
            "tool": tool,
            "arguments": dict(check_mapping({} if arguments is None else arguments, "arguments")),
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "callback": start.callback,
            "wait_seconds": wait_seconds,
            "not_before": not_before and not_before.isoformat(),
            "timeout_seconds": timeout_seconds,
            "accepts_input": accepts_input,
            "rerun_policy": rerun_policy,
        }
        started = await self._transport.fetch_model(
            Started,
            "POST",
            "/v1/calls",
            body=without_none(body),
            headers={"idempotency-key": check_header_value(start.idempotency_key, what="The idempotency key")},
            wait_seconds=wait_seconds,
            repeatable=True,
        )
        return start.with_secret(started)

    async def start_calls(self, calls: Sequence[CallOptions]) -> Sequence[BatchedCall]:
        """Start up to 100 calls, all of them or none, and return them in the given order.

        If one is refused, the error's `extra["index"]` names it. The start is repeated when its response is lost, as in
        `start_call`.
        """
        items = list_mappings(calls, "calls")
        starts = [RepeatableStart(each.get("idempotency_key"), each.get("callback")) for each in items]
        bodies = [
            without_none({**_format_start(each), "idempotency_key": start.idempotency_key, "callback": start.callback})
            for each, start in zip(items, starts, strict=True)
        ]
        started = await self._transport.fetch_model(
            StartedBatch, "POST", "/v1/calls/batch", body={"calls": bodies}, repeatable=True
        )
        return tuple(start.with_secret(call) for start, call in zip(starts, started.calls, strict=False))

    async def cancel(self, call_id: str) -> Call:
        """Request the call's cancellation. Cooperative, idempotent, and without effect on a call that has ended."""
        return await self._transport.fetch_model(Call, "POST", call_path(call_id, "/cancel"), repeatable=True)

    async def cancel_calls(
        self,
        *,
        client_session_id: str | None = None,
        correlation_id: str | None = None,
        upstream: str | None = None,
        tool: str | None = None,
        status: str | None = None,
        dry_run: bool = False,
    ) -> Cancellation:
        """Request the cancellation of your open calls that match, at most 1,000 at once. At least one filter is needed.

        With `dry_run` nothing changes.
        """
        body = {
            "client_session_id": client_session_id,
            "correlation_id": correlation_id,
            "upstream": upstream,
            "tool": tool,
            "status": status,
            "dry_run": dry_run or None,
        }
        return await self._transport.fetch_model(
            Cancellation, "POST", "/v1/calls/cancel", body=without_none(body), repeatable=True
        )

    async def answer(self, call_id: str, responses: Mapping[str, Mapping[str, Any]]) -> Answered:
        """Answer some or all of the call's `input_requests`, with ElicitResults by their keys.

        May be repeated: keys without an open request are ignored. Raises `Conflict` if the call has ended.
        """
        answers = check_mapping(responses, "responses")
        body = {"responses": {key: dict(check_mapping(each, f"responses[{key!r}]")) for key, each in answers.items()}}
        return await self._transport.fetch_model(
            Answered,
            "POST",
            call_path(call_id, "/input"),
            body=body,
            repeatable=True,
            uncertain_statuses={*UNREAD_STATUSES, HTTPStatus.CONFLICT},  # the answer may have ended the call
        )

    async def adopt(self, upstream: str, task_id: str, **options: Unpack[AdoptOptions]) -> Started:
        """Follow a task that already runs upstream. Needs the scope `adopt`.

        Adopting a task twice returns the same call. Raises `NotFound` for a task that is unknown to the upstream or belongs to
        another principal.
        """
        body = {"upstream": upstream, "task_id": task_id, **options}
        return await self._transport.fetch_model(Started, "POST", "/v1/calls/adopt", body=body, repeatable=True)

    async def report(self, key: str, upstream: str, tool: str, **options: Unpack[ReportOptions]) -> Started:
        """Report the start, progress or end of a tool call that runs elsewhere. Needs the scope `adopt`.

        `key` is your own name for the call, the same in all its reports, which makes repeats safe. Raises `Conflict` if the
        key belongs to a different call, or if the call has already ended differently.
        """
        body = {"key": key, "upstream": upstream, "tool": tool, **options}
        return await self._transport.fetch_model(Started, "POST", "/v1/calls/report", body=body, repeatable=True)

    async def resume(self, resume_token: str, *, wait_seconds: float | None = None) -> Resumed:
        """The token's call, its result, and its events since the token. With `wait_seconds` (at most 45), wait for the end."""
        body = without_none({"resume_token": resume_token, "wait_seconds": wait_seconds})
        return await self._transport.fetch_model(
            Resumed, "POST", "/v1/resume", body=body, wait_seconds=wait_seconds, repeatable=True
        )

    async def fresh_resume_token(self, call_id: str, *, revoke_older: bool = False) -> str:
        """A new resume token of the call. `revoke_older` revokes all earlier ones, those in callbacks too."""
        answer = await self._transport.fetch_model(
            ResumeToken, "POST", call_path(call_id, "/resume-token"), body={"revoke_older": revoke_older}
        )
        return answer.resume_token


def _make_http_client(base_url: str, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """For http URLs without certificates: loading them takes a fifth of the time of the first use (measured).

    A service on this machine has no proxy of the environment: that would look for it on its own machine, and get the API key.
    """
    if transport is not None:
        return httpx.AsyncClient(transport=transport)
    uses_tls = not base_url.lower().startswith("http://")
    verify = _load_certificates() if uses_tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(verify=verify, limits=CONNECTION_LIMITS, trust_env=not is_on_this_machine(base_url))


@cache
def _load_certificates() -> ssl.SSLContext:
    """The usual certificates. Loading them blocks the event loop for 25 ms, so all clients of a process share them."""
    return httpx.create_ssl_context()


def _format_start(start: Mapping[str, Any]) -> dict[str, Any]:
    not_before = start.get("not_before")
    return {**start, "not_before": not_before.isoformat() if isinstance(not_before, datetime) else not_before}
