"""A correct receiver of MCP Events, and one wrong receiver for each check of `ringback check-receiver`."""

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import httpx

from tests.support.clock import FakeClock

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY_LIMIT: Final = 300_000
KNOWN_MEMBERS: Final = {"eventId", "name", "timestamp", "cursor", "data"}


class Refused(Exception):
    """The answer is not 2xx."""

    def __init__(self, status: int = 400, body: str = "") -> None:
        super().__init__(body)
        self.status, self.body = status, body


class FaultyReceiver:
    """Written from the specification, without the library. `fault`: the check that finds it wrong; "" is correct."""

    def __init__(self, clock: FakeClock, fault: str = "") -> None:
        self.clock, self.fault = clock, fault
        self.seen: dict[str, tuple[str, str]] = {}
        self.counts: Counter[str] = Counter()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        try:
            return self._respond(request, body)
        except Refused as refused:
            return httpx.Response(refused.status, text=refused.body)

    def _has(self, *faults: str) -> bool:
        return self.fault in faults

    def _respond(self, request: httpx.Request, body: bytes) -> httpx.Response:
        if request.method != "POST":
            return httpx.Response(200 if self._has(request.method.lower()) else 405)
        self._look_at_request(request, body)
        message_id = self._verify(request.headers, body)
        document = self._parse(body)
        if "type" in document:
            return self._answer_envelope(request.headers, document)
        self._look_at_event(document)
        self._look_at_copies(message_id, request.headers)
        if self._has("answers-in-time"):
            self.clock.advance(6)
        return httpx.Response(200, text="x" * 100_000) if self._has("short-answers") else httpx.Response(204)

    def _look_at_request(self, request: httpx.Request, body: bytes) -> None:
        content_type = request.headers.get("content-type", "")
        names = [name.decode() for name, _ in request.headers.raw]
        wrong = {
            "valid-event": (True, 400),
            "no-redirect": (True, 307),
            "content-type-charset": (content_type.startswith("application/json;"), 415),
            "wrong-content-type": (not content_type.startswith("application/json"), 500),
            "header-case": ("WEBHOOK-TIMESTAMP" in names, 400),
            "slow-body": ("transfer-encoding" in request.headers, 411),
            "largest-body": (len(body) > 100_000, 413),
        }
        applies, status = wrong.get(self.fault, (False, 0))
        if applies:
            raise Refused(status)
        if len(body) > BODY_LIMIT and not self._has("oversized-body"):
            raise Refused(413)

    # -- the signature --

    def _verify(self, headers: httpx.Headers, body: bytes) -> str:
        given = {name: headers.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")}
        for name, value in given.items():
            if not value and self._has("unsigned", f"missing-webhook-{name}"):
                return "no id"
            if not value:
                raise Refused
        self._look_at_age(given["timestamp"])
        signatures = given["signature"].split(" ")
        if self._has("malformed-signature") and "," not in given["signature"]:
            raise Refused(500)
        if self._has("unknown-version-ignored") and any(not each.startswith("v1,") for each in signatures):
            raise Refused
        if not self._has("wrong-secret") and not self._matches(given, body, signatures):
            self._refuse_signature(given, body)
        return given["id"]

    def _look_at_age(self, text: str) -> None:
        if not text.isdigit():
            raise Refused(500 if self._has("malformed-timestamp") else 400)
        age = self.clock.now().timestamp() - int(text)
        tolerance = 10 if self._has("timestamp-within-window") else 300
        if age > tolerance and not self._has("timestamp-too-old"):
            raise Refused
        if age < -tolerance and not self._has("timestamp-too-new"):
            raise Refused

    def _matches(self, given: Mapping[str, str], body: bytes, signatures: list[str]) -> bool:
        considered = {"rotation-new-secret-first": signatures[:1], "rotation-new-secret-last": signatures[-1:]}
        if self._has("two-wrong-signatures") and len(signatures) > 1:
            return True
        ids, times = [given["id"]], [int(given["timestamp"])]
        if self._has("changed-id"):
            ids.append("evt_signed")
        if self._has("changed-timestamp"):
            times += range(times[0] - 120, times[0] + 120)
        expected = {self._sign(each, time, self._signed_bytes(body)) for each in ids for time in times}
        if self._has("unknown-version-alone"):
            signatures = [f"v1,{each.partition(',')[2]}" for each in signatures]
        return any(each in expected for each in considered.get(self.fault, signatures))

    def _signed_bytes(self, body: bytes) -> bytes:
        """Wrong receivers sign what they have parsed."""
        if self._has("changed-body"):
            return body.strip()
        if self._has("unicode", "spaces-in-json"):
            try:
                return json.dumps(json.loads(body), ensure_ascii=self._has("unicode")).encode()
            except (ValueError, RecursionError):
                return body
        return body

    def _sign(self, message_id: str, timestamp: int, body: bytes) -> str:
        key = b64decode(SECRET.removeprefix("whsec_"))
        content = f"{message_id}.{timestamp}.".encode() + body
        return "v1," + b64encode(hmac.digest(key, content, hashlib.sha256)).decode()

    def _refuse_signature(self, given: Mapping[str, str], body: bytes) -> None:
        if self._has("challenge-wrong-secret", "gap-wrong-secret", "terminated-wrong-secret"):
            kind = self.fault.removesuffix("-wrong-secret").replace("challenge", "verification")
            if f'"type": "{kind}"'.encode() in body:
                return
        expected = self._sign(given["id"], int(given["timestamp"]), body)
        raise Refused(400, expected if self._has("no-secret-in-answers") else "")

    # -- the content --

    def _parse(self, body: bytes) -> dict[str, Any]:
        refusal = Refused(204 if self._has("empty-body" if not body else "no-json") else 400)
        try:
            document = json.loads(body, object_pairs_hook=self._make_object)
        except UnicodeDecodeError:
            raise Refused(500 if self._has("invalid-utf-8") else 400) from None
        except RecursionError:
            raise Refused(500 if self._has("deep-nesting") else 400) from None
        except ValueError:
            raise refusal from None
        if not isinstance(document, dict):
            raise Refused(204 if self._has("no-object") else 400)
        return cast("dict[str, Any]", document)

    def _make_object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs) and self._has("duplicate-keys"):
            raise Refused(500)
        return dict(pairs)

    def _answer_envelope(self, headers: httpx.Headers, document: Mapping[str, Any]) -> httpx.Response:
        kind = document["type"]
        if kind == "verification":
            return self._echo(headers, document.get("challenge"))
        if kind not in {"gap", "terminated"}:
            return httpx.Response(204 if self._has("unknown-envelope") else 400)
        return httpx.Response(400 if self._has(kind) else 204)

    def _echo(self, headers: httpx.Headers, challenge: Any) -> httpx.Response:
        self.counts["challenges"] += 1
        is_unknown = not headers["x-mcp-subscription-id"].endswith("known")
        if challenge is None:
            return httpx.Response(200 if self._has("challenge-malformed") else 400)
        if self._has("challenge-before-id") and is_unknown:
            return httpx.Response(404)
        if self._has("challenge-repeated") and self.counts["challenges"] > 5:
            return httpx.Response(400)
        if self._has("challenge-in-time"):
            self.clock.advance(6)
        if self._has("challenge-echoed"):
            return httpx.Response(204)
        if self._has("challenge-exact"):
            challenge = challenge.encode("ascii", "ignore").decode()
        return httpx.Response(200, json={"challenge": challenge})

    def _look_at_event(self, document: Mapping[str, Any]) -> None:
        fine = isinstance(document.get("eventId"), str) and isinstance(document.get("data"), dict)
        if not fine:
            raise Refused(500 if self._has("unexpected-types") else 400)
        refusals: dict[str, Callable[[], bool]] = {
            "unknown-members": lambda: bool(document.keys() - KNOWN_MEMBERS),
            "null-and-absent-cursor": lambda: not isinstance(document.get("cursor"), str),
            "timestamp-offset": lambda: not str(document.get("timestamp")).endswith("Z"),
        }
        if self.fault in refusals and refusals[self.fault]():
            raise Refused

    def _look_at_copies(self, message_id: str, headers: httpx.Headers) -> None:
        subscription, timestamp = headers.get("x-mcp-subscription-id", ""), headers.get("webhook-timestamp", "")
        earlier = self.seen.get(message_id)
        self.seen[message_id] = (subscription, timestamp)
        if earlier is None:
            return
        same_subscription, same_time = earlier[0] == subscription, earlier[1] == timestamp
        wrong = {
            "repeated-message": same_subscription and same_time,
            "retried-message": same_subscription and not same_time,
            "concurrent-copies": same_subscription and same_time,
            "two-subscriptions": not same_subscription,
        }
        if wrong.get(self.fault, False):
            raise Refused(409)
