"""The route class of everything that has an owner: first who asks, then what it says.

FastAPI reads and parses a body before it looks at anything else, with a parser that takes more than JSON. Here nobody's body is
read before they are known, and it is read strictly.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.routing import APIRoute

from ringback.api.auth import authenticate_request
from ringback.api.problems import MalformedJson, UnsupportedMediaType
from ringback.domain import jsontext
from ringback.domain.errors import InvalidRequest


class AuthenticatedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        is_body_optional = self.body_field is not None and not self.body_field.field_info.is_required()

        async def handle_authenticated(request: Request) -> Response:
            request.state.caller = await authenticate_request(request)
            if self.body_field is None:
                return await handle(request)
            strict = StrictJsonRequest(request.scope, request.receive)
            if is_body_optional and not await strict.body():
                return await handle(strict)
            require_json_content_type(request.headers.get("content-type"))
            await strict.json()
            return await handle(strict)

        return handle_authenticated


class StrictJsonRequest(Request):
    """A request whose JSON is read by `parse_json`, once: FastAPI asks again and gets the same value."""

    async def json(self) -> Any:
        if not hasattr(self, "_value"):
            self._value = parse_strict_json(await self.body())
        return self._value


def require_json_content_type(content_type: str | None) -> None:
    """Raise `UnsupportedMediaType` unless the header says application/json, with whatever parameters."""
    if (content_type or "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("The body must be JSON. Send it with the header 'Content-Type: application/json'.")


def parse_strict_json(text: bytes) -> Any:
    """The value of a JSON text (RFC 8259) that can be written again as it is.

    orjson is the judge of the text: it knows where it stopped, and takes no NaN, no number beyond doubles and no half of a
    surrogate pair. Python's parser makes the value, because orjson would round integers beyond 64 bits; those we refuse.
    """
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as problem:
        raise MalformedJson(
            f"The body is not JSON: {problem.msg}, at line {problem.lineno}, column {problem.colno}.",
            position=problem.pos,
            line=problem.lineno,
            column=problem.colno,
        ) from None
    try:
        value = json.loads(text)
        jsontext.dumps(value)
    except (TypeError, RecursionError):
        raise InvalidRequest(
            "The body holds an integer beyond 64 bits or more than 250 levels. Send such a number as a string."
        ) from None
    return value
