"""Responses that contain a stored result."""

from collections.abc import Mapping
from typing import Final

import orjson
from fastapi import Response

from ringback.schemas.fields import ResponseBody

JSON_MEDIA_TYPE: Final = "application/json"


def build_result_response(
    view: ResponseBody, result: bytes | None, *, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Serialise the view with the stored bytes of the result inside it. Parsing the result could change it."""
    document = view.model_dump(mode="json", by_alias=True)
    if result is not None:
        document["result"] = orjson.Fragment(result)
    return Response(
        orjson.dumps(document), status_code=status_code, headers=dict(headers or {}), media_type=JSON_MEDIA_TYPE
    )
