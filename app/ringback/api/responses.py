"""Parts that several responses share: a header, and a stored result."""

from collections.abc import Mapping
from typing import Final

import orjson
from fastapi import Response

from ringback.domain import jsontext
from ringback.schemas.fields import ResponseBody

JSON_MEDIA_TYPE: Final = "application/json"
REPLAYED_HEADER: Final = "Idempotent-Replayed"
"""`true` in a response whose idempotency key was used before."""


def build_result_response(
    view: ResponseBody, result: bytes | None, *, status_code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Serialise the view with the stored bytes of the result inside it. Parsing the result could change it."""
    document = view.model_dump(mode="json", by_alias=True)
    if result is not None:
        document["result"] = orjson.Fragment(result)
    return Response(
        jsontext.dumps(document), status_code=status_code, headers=dict(headers or {}), media_type=JSON_MEDIA_TYPE
    )
