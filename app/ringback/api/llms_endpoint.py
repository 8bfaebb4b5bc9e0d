"""`GET /llms.txt`: what a language model needs to know to use Ringback (https://llmstxt.org). It needs no key.

The text is a file of the package; `scripts/openapi` copies it to openapi/.
"""

from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

LLMS_TEXT: Final = files("ringback.api").joinpath("llms.txt").read_bytes()
EXAMPLE_URL: Final = b"http://HOST:8090"
"""Where the text names the base of the API. A service writes its public URL instead."""
MEDIA_TYPE: Final = "text/plain; charset=utf-8"
"""Markdown as plain text: browsers show it instead of offering a download."""


class LlmsTextEndpoint:
    def __init__(self, public_url: str) -> None:
        self._text = LLMS_TEXT.replace(EXAMPLE_URL, public_url.encode())

    async def __call__(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        return Response(self._text, media_type=MEDIA_TYPE)
