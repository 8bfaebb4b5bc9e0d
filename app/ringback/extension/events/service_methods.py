"""The five methods at a Ringback service, for a server that stores its events there: JSON-RPC over HTTP, of 2026-07-28."""

import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, cast

import httpx
from httpx_sse import EventSource, SSEError
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from ringback.protocol.mcp_events.backend import DeliveryStatus, SubscriptionGrant, SubscriptionRequest
from ringback.protocol.mcp_events.errors import CallbackFailure, ErrorProfile, EventError, EventErrorName
from ringback.protocol.mcp_events.grants import TtlRequest
from ringback.protocol.mcp_events.names import EVENTS_EXTENSION, DeliveryMode, EventMethod
from ringback.protocol.mcp_events.occurrence import EventOccurrence

PROTOCOL_VERSION: Final = "2026-07-28"
RESPONSE_SECONDS: Final = 20.0
"""A verification takes 15 s at most; every other answer milliseconds, beside the wait of a long poll."""
SILENCE_SECONDS: Final = 30.0
"""Three heartbeats of a stream."""
Json = dict[str, Any]


class ServiceUnreachable(Exception):
    """The service cannot be reached, or its answer is not a JSON-RPC response."""


class ServiceMethods:
    """`http` authenticates its requests. `url` is that of the service's MCP endpoint."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url
        self._ids = itertools.count(1)

    async def request(
        self,
        method: EventMethod,
        params: Mapping[str, Any],
        *,
        profile: ErrorProfile = ErrorProfile.SKETCH,
        wait_seconds: float = 0.0,
    ) -> Json:
        """The result. Raises `EventError` as the service answers, or as InternalError if it cannot be reached."""
        try:
            response = await self._http.post(
                self._url, **self._build_request(method, params, profile), timeout=RESPONSE_SECONDS + wait_seconds
            )
            message = await _read_message(response)
        except (httpx.HTTPError, ServiceUnreachable):
            raise unreachable() from None
        return _get_result(message)

    async def stream(self, params: Mapping[str, Any]) -> AsyncGenerator[Json]:
        """The messages of events/stream, up to its result. Raises `EventError` and `ServiceUnreachable`."""
        timeout = httpx.Timeout(RESPONSE_SECONDS, read=SILENCE_SECONDS)
        arguments = self._build_request(EventMethod.STREAM, params, ErrorProfile.SKETCH)
        try:
            async with self._http.stream("POST", self._url, **arguments, timeout=timeout) as response:
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    _get_result(await _read_message(response))
                    return
                async with aclosing(EventSource(response).aiter_sse()) as frames:
                    async for frame in frames:
                        message: Json = json.loads(frame.data)
                        if "method" not in message:
                            _get_result(message)
                            return
                        yield message
        except (httpx.HTTPError, SSEError, ValueError) as problem:
            raise ServiceUnreachable(str(problem)) from problem

    def _build_request(self, method: EventMethod, params: Mapping[str, Any], profile: ErrorProfile) -> Json:
        capabilities: Json = {"extensions": {EVENTS_EXTENSION: {}}} if profile is ErrorProfile.SEP else {}
        meta: Json = {
            PROTOCOL_VERSION_META_KEY: PROTOCOL_VERSION,
            CLIENT_CAPABILITIES_META_KEY: capabilities,
            CLIENT_INFO_META_KEY: {"name": "ringback-extension", "version": "1"},
        }
        params = {**params, "_meta": {**params.get("_meta", {}), **meta}}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": str(method), "params": params}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": PROTOCOL_VERSION,
            "mcp-method": str(method),
        }
        return {"json": message, "headers": headers}


def unreachable() -> EventError:
    """A new error each time: one that is raised again keeps the frames, and so the requests, of each time before."""
    return EventError(EventErrorName.INTERNAL_ERROR, "The log of events cannot be reached now. Try again later.")


async def _read_message(response: httpx.Response) -> Json:
    """The JSON-RPC response, as JSON or as the last frame of a stream."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        frames = [frame.data async for frame in EventSource(response).aiter_sse()]
        text: str | bytes = frames[-1] if frames else ""
    else:
        text = await response.aread()
    try:
        message: Any = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict) or not {"result", "error"} & cast("Json", message).keys():
        raise ServiceUnreachable(f"HTTP {response.status_code}")
    return cast("Json", message)


def _get_result(message: Json) -> Json:
    if "error" in message:
        raise parse_error(message["error"])
    result: Json = message["result"]
    return result


def parse_error(error: Mapping[str, Any]) -> EventError:
    """The service's error by the name at the beginning of its message."""
    name, _, detail = str(error.get("message", "")).partition(": ")
    if name not in set(EventErrorName):
        return EventError(EventErrorName.INTERNAL_ERROR, "The service that stores the events refuses this request.")
    return EventError(EventErrorName(name), detail, error.get("data"))


def parse_occurrence(wire: Mapping[str, Any]) -> EventOccurrence:
    return EventOccurrence(
        event_id=wire["eventId"],
        name=wire["name"],
        timestamp=datetime.fromisoformat(wire["timestamp"]),
        data=wire["data"],
        cursor=wire.get("cursor"),
    )


def build_subscribe_params(request: SubscriptionRequest) -> Json:
    params: Json = {
        "name": request.name,
        "arguments": dict(request.arguments),
        "delivery": {"mode": str(DeliveryMode.WEBHOOK), "url": request.url, "secret": request.secret},
        "cursor": request.cursor,
    }
    if request.max_age_seconds is not None:
        params["maxAgeMs"] = request.max_age_seconds * 1000
    if request.ttl is TtlRequest.NO_EXPIRY:
        params["ttlMs"] = None
    elif isinstance(request.ttl, float):
        params["ttlMs"] = request.ttl * 1000
    return params


def parse_grant(result: Mapping[str, Any]) -> SubscriptionGrant:
    refresh_before = result["refreshBefore"]
    status = result.get("deliveryStatus")
    return SubscriptionGrant(
        id=result["id"],
        refresh_before=None if refresh_before is None else datetime.fromisoformat(refresh_before),
        cursor=result["cursor"],
        truncated=result["truncated"],
        delivery_status=None if status is None else _parse_status(status),
    )


def _parse_status(status: Mapping[str, Any]) -> DeliveryStatus:
    last_delivery_at, failed_since = status.get("lastDeliveryAt"), status.get("failedSince")
    last_error = status.get("lastError")
    return DeliveryStatus(
        active=status["active"],
        last_delivery_at=None if last_delivery_at is None else datetime.fromisoformat(last_delivery_at),
        last_error=None if last_error is None else CallbackFailure(last_error),
        failed_since=None if failed_since is None else datetime.fromisoformat(failed_since),
        throttled=status.get("throttled"),
        retry_after_ms=status.get("retryAfterMs"),
    )
