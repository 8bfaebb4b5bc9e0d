"""The callbacks of one run: each has a URL of its own, a secret, the responses that a case scripts, and what it received."""

import asyncio
import base64
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

Json = dict[str, Any]

SUBSCRIPTION_HEADER: Final = "x-mcp-subscription-id"
SIGNATURE_HEADERS: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")
SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPost:
    method: str
    target: str
    """Path and query, byte for byte."""
    headers: tuple[tuple[str, str], ...]
    """With names in lower case."""
    body: bytes
    at: float
    """The loop's time, in seconds."""

    def header(self, name: str) -> str:
        return next((value for known, value in self.headers if known == name), "")

    @property
    def json(self) -> Json:
        """The body as an object; empty if it is none."""
        with suppress(ValueError, RecursionError):
            value = json.loads(self.body)
            return cast("Json", value) if isinstance(value, dict) else {}
        return {}

    @property
    def envelope_type(self) -> str | None:
        """The type of a control envelope; None for an event."""
        kind = self.json.get("type")
        return kind if isinstance(kind, str) else None

    def find_signature_fault(self, *known_secrets: str) -> str | None:
        """Why the signature is not valid with any of these secrets; None if it is valid.

        The formula alone decides: a run reads posts minutes after they came, and an id may have any visible characters.
        """
        for name in SIGNATURE_HEADERS:
            if (count := sum(known == name for known, _ in self.headers)) != 1:
                return f"{count} headers {name}"
        message_id, timestamp, signatures = map(self.header, SIGNATURE_HEADERS)
        content = f"{message_id}.{timestamp}.".encode("latin-1") + self.body
        valid = {_compute_signature(secret, content) for secret in known_secrets}
        return None if valid & set(signatures.split(" ")) else "no signature of v1 matches"


@dataclass(frozen=True, slots=True)
class CallbackResponse:
    status: int = HTTPStatus.NO_CONTENT
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def generate_secret(size: int = SECRET_BYTES) -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(size)).decode()}"


def _compute_signature(secret: str, content: bytes) -> str:
    digest = hmac.digest(base64.b64decode(secret.removeprefix("whsec_")), content, "sha256")
    return f"v1,{base64.b64encode(digest).decode()}"


Respond = Callable[[ReceivedPost], CallbackResponse]


@dataclass(slots=True)
class CallbackRecorder:
    """A callback URL that records the posts to it and answers each with `respond`."""

    url: str
    target: str
    """Path and query at the endpoint."""
    respond: Respond
    secret: str = field(default_factory=generate_secret)
    posts: list[ReceivedPost] = field(default_factory=list[ReceivedPost])
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def events(self) -> list[ReceivedPost]:
        return [post for post in self.posts if post.envelope_type is None]

    @property
    def attempts(self) -> list[ReceivedPost]:
        """The attempts of the event that came first: what makes one event happen may make several."""
        return [post for post in self.events if _is_same_message(post, self.events[0])]

    @property
    def challenges(self) -> list[ReceivedPost]:
        return [post for post in self.posts if post.envelope_type == "verification"]

    def receive(self, post: ReceivedPost) -> CallbackResponse:
        self.posts.append(post)
        self._changed.set()
        return self.respond(post)

    async def wait_for_attempts(self, count: int, seconds: float) -> bool:
        """Whether so many attempts of one event arrive within the time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while len(self.attempts) < count:
                    self._changed.clear()
                    await self._changed.wait()
        return len(self.attempts) >= count


def _is_same_message(post: ReceivedPost, first: ReceivedPost) -> bool:
    """A retry that changes either its id or its body is still one, so that the checks of retries find it."""
    same_header = post.header("webhook-id") == first.header("webhook-id")
    return same_header or post.json.get("eventId") == first.json.get("eventId")


def _echo(post: ReceivedPost) -> CallbackResponse:
    body = json.dumps({"challenge": post.json.get("challenge")}).encode()
    return CallbackResponse(HTTPStatus.OK, body, {"content-type": "application/json"})


def acknowledge(post: ReceivedPost) -> CallbackResponse:
    """Echo a challenge, and acknowledge all else."""
    return _echo(post) if post.envelope_type == "verification" else CallbackResponse()


def refuse_events(status: int, *, times: int | None = None, headers: Mapping[str, str] | None = None) -> Respond:
    """Echo a challenge, and answer events with this status: `times` of them, or all."""
    refused = 0

    def respond(post: ReceivedPost) -> CallbackResponse:
        nonlocal refused
        if post.envelope_type is not None or (times is not None and refused >= times):
            return acknowledge(post)
        refused += 1
        return CallbackResponse(status, headers=headers or {})

    return respond


def answer_challenges(response: CallbackResponse) -> Respond:
    """Answer challenges with this, and acknowledge all else."""
    return lambda post: response if post.envelope_type == "verification" else CallbackResponse()
