"""The client's methods about stored results."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ringback.client.arguments import quote_path_segment
from ringback.client.problems import UnexpectedAnswer
from ringback.client.resource_client import ResourceClient
from ringback.client.responses import parse_object
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import service_models
else:
    service_models = LazyModule("ringback.client.service_models")

UNCOMPRESSED: Final = {"accept-encoding": "identity"}
"""A proxy that compresses a response changes its length and its bytes, and weakens its ETag (RFC 9110 §8.8.1)."""


class ResultMethods(ResourceClient):
    async def result(self, call_id: str) -> Mapping[str, Any]:
        """The stored CallToolResult, unchanged from the upstream. Raises `Conflict` if there is none (yet)."""
        return parse_object(await self._transport.send_request("GET", _result_path(call_id)))

    async def result_info(self, call_id: str) -> service_models.ResultInfo:
        """The size and the hash of the stored result, without the result."""
        response = await self._transport.send_request(
            "HEAD", _result_path(call_id), headers=UNCOMPRESSED, repeatable=True
        )
        length, etag = (response.headers.get(name, "") for name in ("content-length", "etag"))
        if not length:
            raise UnexpectedAnswer("The response does not say how long the result is: a proxy has removed it.")
        return service_models.ResultInfo(bytes=int(length), sha256=etag.removeprefix("W/").strip('"') or None)

    async def result_part(self, call_id: str, start: int = 0, stop: int | None = None) -> bytes:
        """The stored bytes of the result from `start` up to, but not including, `stop`; all of them by default.

        For results that are too large to read at once. The bytes are those of `result_sha256`, the JSON of the CallToolResult.
        """
        if start < 0 or (stop is not None and stop <= start):
            raise ValueError("`start` is at least 0, and `stop` is greater than `start`.")
        last = "" if stop is None else stop - 1
        response = await self._transport.send_request(
            "GET", _result_path(call_id), headers={**UNCOMPRESSED, "range": f"bytes={start}-{last}"}
        )
        return response.content if response.status_code == HTTPStatus.PARTIAL_CONTENT else response.content[start:stop]


def _result_path(call_id: str) -> str:
    return f"/v1/calls/{quote_path_segment(call_id, 'call_id')}/result"
