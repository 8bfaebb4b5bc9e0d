"""The path of the public URL: `/ringback` if clients reach the service at https://tools.example.com/ringback.

A proxy may remove the path from requests or leave it: both arrive at the same operations. Responses name the service's own
paths without it, so this middleware adds it where HTTP resolves a path against the host: in `Location`, and in the `type` of a
problem document. It does so for every operation, so no operation knows the path.
"""

from typing import Any, Final, cast
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringback.api.problems import MEDIA_TYPE
from ringback.domain import jsontext

OWN_FIRST_SEGMENTS: Final = frozenset(
    {
        "v1",
        "mcp",
        "problems",
        "healthz",
        "readyz",
        "metrics",
        ".well-known",
        "openapi.json",
        "llms.txt",
        "register",
        "login",
        "ui",
    }
)
"""First segments of the service's own paths. A public path that begins with one must be removed by the proxy: no rule could say
whether `/mcp/git` is the endpoint of an upstream or a path below the public path `/mcp`."""


def read_public_path(public_url: str) -> str:
    """The path of the public URL without a slash at the end; empty if the service is at the root of its host."""
    return urlsplit(public_url).path.rstrip("/")


class PublicPathMiddleware:
    """Removes the public path from requests that have it, and adds it to the paths in responses."""

    def __init__(self, app: ASGIApp, *, public_path: str) -> None:
        self._app = app
        self._public_path = public_path
        self._is_removable = public_path.split("/")[1] not in OWN_FIRST_SEGMENTS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._app(
            self._without_public_path(scope), receive, _PublicResponse(send, self._public_path).send_message
        )

    def _without_public_path(self, scope: Scope) -> Scope:
        """The scope as if the proxy had removed the path. Under a mount (`root_path`) the router removes it."""
        path: str = scope["path"]
        if scope.get("root_path") or not self._is_removable or not f"{path}/".startswith(f"{self._public_path}/"):
            return scope
        own_path = path.removeprefix(self._public_path) or "/"  # a browser may be sent to the public URL itself
        raw = cast("bytes", scope.get("raw_path") or path.encode()).removeprefix(self._public_path.encode()) or b"/"
        return {**scope, "path": own_path, "raw_path": raw}


class _PublicResponse:
    """Adds the public path to one response. The start of a problem document waits for its body, whose length changes."""

    def __init__(self, send: Send, public_path: str) -> None:
        self._send = send
        self._public_path = public_path
        self._problem_start: Message | None = None
        self._problem_body = b""

    async def send_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._send_start(message)
        elif self._problem_start is not None and message["type"] == "http.response.body":
            await self._send_problem(self._problem_start, message)
        else:
            await self._send(message)

    async def _send_start(self, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        if headers.get("location", "").startswith("/"):
            headers["location"] = self._public_path + headers["location"]
        if headers.get("content-type") == MEDIA_TYPE:
            self._problem_start = message
        else:
            await self._send(message)

    async def _send_problem(self, start: Message, message: Message) -> None:
        self._problem_body += message.get("body", b"")
        if message.get("more_body", False):
            return
        self._problem_start = None
        body = self._with_public_type(self._problem_body)
        MutableHeaders(scope=start)["content-length"] = str(len(body))
        await self._send(start)
        await self._send({**message, "body": body})

    def _with_public_type(self, body: bytes) -> bytes:
        document: Any = jsontext.loads(body) if body else None  # the response to a HEAD request may have no body
        if not isinstance(document, dict):
            return body
        members = cast("dict[str, Any]", document)
        return jsontext.dumps(members | {"type": f"{self._public_path}{members['type']}"})
