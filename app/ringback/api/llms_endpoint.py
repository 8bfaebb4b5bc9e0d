"""`GET /llms.txt`: what a language model needs to know to use Ringback (https://llmstxt.org). It needs no key.

The text is a file of the package; `scripts/openapi` copies it to openapi/.
"""

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

LLMS_TEXT: Final = files("ringback.api").joinpath("llms.txt").read_bytes()
MEDIA_TYPE: Final = "text/plain; charset=utf-8"
"""Markdown as plain text: browsers show it instead of offering a download."""


async def send_llms_text(request: Request) -> Response:  # noqa: ARG001 - Starlette's signature
    return Response(LLMS_TEXT, media_type=MEDIA_TYPE)
