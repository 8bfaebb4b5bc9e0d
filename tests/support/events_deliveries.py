"""The webhook subscriptions of `tests.support.events_server`, and their deliveries."""

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from ringback.domain.clock import SystemClock
from ringback.signing.secrets import InvalidSecret, parse_secret
from ringback.signing.standard_webhooks import sign_message
from tests.support.events_faults import BODIES
from tests.support.events_log import EventsLog, RpcError, check_arguments, find_type
from tests.support.limits import WAIT_SECONDS

Json = dict[str, Any]

TTL_DEFAULT_MS: Final = 3_600_000
TTL_FLOOR_MS: Final = 60_000
TTL_MAX_MS: Final = 86_400_000
ATTEMPTS_MAX: Final = 3
RETRY_SECONDS: Final = 0.02
SLOW_RETRY_SECONDS: Final = 1.1
"""Of the server whose retries repeat the first timestamp: a correct one has another by then."""
FINAL_STATUSES: Final = {410: "delivery-410-non-retryable", 413: "delivery-413-non-retryable"}


@dataclass
class Subscribed:
    id: str
    url: str
    secrets: list[str]
    is_live: bool = True
    last_error: str | None = None
    attempting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during an attempt, so that none arrives after the response to an unsubscribe."""


@dataclass
class EventsWebhooks:
    log: EventsLog
    fault: str
    by_key: dict[str, Subscribed] = field(default_factory=dict[str, Subscribed])
    verified: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Principals and URLs."""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def subscribe(self, principal: str, params: Json) -> Json:
        if self.fault == "subscribe-webhook-only":
            raise RpcError(-32601, "Method not found")
        if not principal and self.fault != "subscribe-auth-required":
            raise RpcError(-32012, "Forbidden: no principal")
        delivery: Json = params["delivery"]
        described = find_type(params.get("name"), self.fault)
        if "webhook" not in described["delivery"] and self.fault != "error-unsupported":
            data = {"feature": "deliveryMode", "value": "webhook"}
            raise RpcError(-32014, "Unsupported: this delivery mode", data)
        if self.fault not in {"subscribe-arguments-checked", "error-invalid-params"}:
            check_arguments(params["arguments"])
        secret = self._check_secret(delivery)
        self._check_url(delivery["url"])
        key = self._make_key(principal, params)
        known = self.by_key.get(key)
        subscribed = known or Subscribed(self._make_id(key), delivery["url"], [secret])
        proof = (principal, subscribed.url)
        if self.fault == "ssrf-reject-non-routable" and _is_private(urlsplit(subscribed.url).hostname or ""):
            self.verified.add(proof)
        if self.fault == "callbacks-allowed":
            self.verified.add(proof)
        if proof not in self.verified or self.fault == "verification-cached-per-principal-url":
            await self._verify(subscribed, secret)
            self.verified.add(proof)
        self.by_key[key] = subscribed
        self._replace_secret(subscribed, secret)
        subscribed.is_live = True
        return self._grant(subscribed, params)

    async def unsubscribe(self, principal: str, params: Json) -> Json:
        if self.fault == "unsubscribe-by-key" and "mode" not in params["delivery"]:
            raise RpcError(-32602, "InvalidParams: mode")
        if self.fault == "unsubscribe-mode-tolerated" and "mode" in params["delivery"]:
            raise RpcError(-32602, "InvalidParams: mode")
        subscribed = self.by_key.get(self._make_key(principal, params))
        if self.fault == "unsubscribe-foreign-not-found":
            subscribed = next((each for each in self.by_key.values() if each.url == params["delivery"]["url"]), None)
        if subscribed is None:
            if self.fault == "unsubscribe-unknown-not-found":
                return {}
            raise RpcError(-32011, "NotFound: subscription", {"kind": "subscription"})
        if not subscribed.is_live and self.fault == "unsubscribe-repeatable":
            raise RpcError(-32602, "InvalidParams: it has ended")
        async with subscribed.attempting:
            subscribed.is_live = self.fault == "unsubscribe-stops-delivery"
        return {}

    def notify(self) -> None:
        """Send the newest event to all subscriptions."""
        if self.fault == "delivery-implemented":
            return
        for subscribed in self.by_key.values():
            if subscribed.is_live:
                task = asyncio.create_task(self._deliver(subscribed, self.log.events[-1]))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def close(self) -> None:
        """Give up what is being delivered."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    # -- checks and identity

    def _check_secret(self, delivery: Json) -> str:
        secret = delivery.get("secret")
        if secret is None:
            if self.fault == "subscribe-secret-required":
                return f"whsec_{'A' * 32}"
            raise RpcError(-32602, "InvalidParams: secret")
        if self.fault == "subscribe-secret-unpadded" and len(secret) % 4 != 2:
            raise RpcError(-32602, "InvalidParams: secret")
        try:
            parse_secret(secret)
        except InvalidSecret as error:
            tolerant = {"subscribe-secret-format", "subscribe-secret-rejected", "subscribe-secret-base64"}
            if self.fault not in tolerant:
                raise RpcError(-32602, f"InvalidParams: {error}") from None
        return str(secret)

    def _check_url(self, url: str) -> None:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if (parts.username or parts.fragment) and self.fault != "subscribe-url-userinfo-fragment":
            raise RpcError(-32602, "InvalidParams: url")
        if not host or parts.scheme not in {"http", "https"}:
            if self.fault != "subscribe-url-https-required":
                raise RpcError(-32602, "InvalidParams: url")
            raise RpcError(-32000, "Oops")
        is_this_machine = host == "127.0.0.1" and self.fault != "subscribe-refuses-loopback"
        if parts.scheme == "http" and not is_this_machine and self.fault != "subscribe-url-non-https-rejected":
            raise RpcError(-32602, "InvalidParams: url")
        if not is_this_machine and self.fault != "ssrf-reject-non-routable" and _is_private(host):
            raise RpcError(-32602, "InvalidParams: url")

    def _make_key(self, principal: str, params: Json) -> str:
        sort = self.fault != "subscribe-key-canonical"
        parts: list[Any] = [params["delivery"]["url"], params["name"], params["arguments"]]
        if self.fault == "subscribe-key-immutable":
            parts[2] = {}
        if self.fault != "subscribe-cross-tenant-isolation":
            parts.append(principal)
        return json.dumps(parts, sort_keys=sort)

    def _make_id(self, key: str) -> str:
        if self.fault == "subscribe-key-composition":
            return "sub_one"
        return f"sub_{sha256(key.encode()).hexdigest()[:32]}"

    def _replace_secret(self, subscribed: Subscribed, secret: str) -> None:
        if secret not in subscribed.secrets:
            kept = [] if self.fault == "delivery-dual-sign-on-rotation" else subscribed.secrets
            subscribed.secrets = [secret, *kept]
            if self.fault == "subscribe-refresh-replaces-secret":
                subscribed.secrets = subscribed.secrets[1:]

    def _grant(self, subscribed: Subscribed, params: Json) -> Json:
        ttl = params.get("ttlMs", TTL_DEFAULT_MS)
        if self.fault == "ttl-no-rejection-path" and ttl is not None and ttl < TTL_FLOOR_MS:
            raise RpcError(-32602, "InvalidParams: ttlMs")
        refresh_before = None
        if ttl is not None and not (self.fault == "ttl-omitted-means-default" and "ttlMs" not in params):
            granted = timedelta(milliseconds=min(max(ttl, TTL_FLOOR_MS), TTL_MAX_MS))
            refresh_before = (SystemClock().now() + granted).isoformat().replace("+00:00", "Z")
        takes_id = self.fault == "subscribe-id-not-an-input" and "id" in params
        is_upsert = self.fault == "subscribe-idempotent-upsert"
        return {
            "id": params["id"] if takes_id else f"{subscribed.id}{next(self.numbers)}" if is_upsert else subscribed.id,
            "refreshBefore": refresh_before,
            "cursor": self.log.cursor(len(self.log.events)),
            "truncated": False,
            "deliveryStatus": {"active": True, "lastDeliveryAt": None, "lastError": subscribed.last_error},
        }

    # -- requests to callbacks

    async def _verify(self, subscribed: Subscribed, secret: str) -> None:
        number = 0 if self.fault == "verification-challenge-single-use" else next(self.numbers)
        challenge: Any = number if self.fault == "verification-challenge-echo" else f"challenge-{number}"
        body = json.dumps({"type": "verification", "challenge": challenge}).encode()
        prefix = "" if self.fault == "envelope-webhook-id-format" else "msg_verification_"
        signing = "whsec_" + "B" * 32 if self.fault == "envelope-signed-like-deliveries" else secret
        try:
            response = await self._post(subscribed, f"{prefix}{next(self.numbers)}", body, [signing])
        except httpx.HTTPError:
            raise RpcError(-32015, "CallbackEndpointError", {"reason": "connection_refused"}) from None
        if response.status_code >= 300:
            reason = "http_5xx" if self.fault != "error-callback-endpoint-error" else response.text
            message = "CallbackEndpointError"
            if self.fault == "verification-no-raw-endpoint-responses":
                message += response.text
            raise RpcError(-32015, message, {"reason": reason})
        if response.json().get("challenge") != challenge:
            if self.fault in {"verification-required-before-delivery", "verification-failure-error"}:
                return
            raise RpcError(-32015, "CallbackEndpointError", {"reason": "challenge_failed"})

    async def _deliver(self, subscribed: Subscribed, event: Json) -> None:
        rewrite = BODIES.get(self.fault, dict)
        body = json.dumps(rewrite({**event, "cursor": self.log.cursor(len(self.log.events))})).encode()
        message_id = str(json.loads(body)["eventId"])
        if self.fault == "delivery-webhook-id-equals-event-id":
            message_id = f"msg_{subscribed.id}"
        first_timestamp = _read_time()
        for _ in range(8 if self.fault == "delivery-retries-bounded" else ATTEMPTS_MAX):
            repeats = self.fault == "delivery-retry-regenerates-signature"
            timestamp = first_timestamp if repeats else _read_time()
            async with subscribed.attempting:
                if not subscribed.is_live:
                    return
                response = await self._post(subscribed, message_id, body, subscribed.secrets, timestamp=timestamp)
            if self.fault == "delivery-retry-same-message":
                body += b" "
            status = response.status_code
            is_final = status in FINAL_STATUSES and self.fault != FINAL_STATUSES[status]
            if response.is_success or is_final:
                subscribed.last_error = None if response.is_success else "http_4xx"
                return
            await asyncio.sleep(SLOW_RETRY_SECONDS if repeats else RETRY_SECONDS)

    async def _post(
        self, subscribed: Subscribed, message_id: str, body: bytes, secrets: list[str], *, timestamp: int | None = None
    ) -> httpx.Response:
        timestamp = _read_time() if timestamp is None else timestamp
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign_message(secrets, message_id=message_id, timestamp=timestamp, body=body),
            "x-mcp-subscription-id": subscribed.id,
        }
        url = subscribed.url
        match self.fault:
            case "delivery-post-json":
                headers["content-type"] = "text/plain"
            case "delivery-standard-webhooks-headers":
                headers["webhook-timestamp"] = "2026-11-22T10:00:00Z"
            case "delivery-subscription-id-header":
                del headers["x-mcp-subscription-id"]
            case "delivery-signature-formula":
                headers["webhook-signature"] = headers["webhook-signature"][:-6] + "AAAAA="
            case "delivery-url-unchanged":
                url = url.partition("?")[0]
            case _:
                pass
        follows = self.fault == "ssrf-no-redirects"
        async with httpx.AsyncClient(
            timeout=WAIT_SECONDS,
            follow_redirects=follows,
            trust_env=False,
            verify=False,  # noqa: S501 - callbacks of tests are http, and certificates take time to load
        ) as http:
            return await http.request("POST", url, content=body, headers=headers)


def _read_time() -> int:
    return int(SystemClock().wall_time().timestamp())


def _is_private(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return not address.is_global or host.startswith("64:ff9b:")
