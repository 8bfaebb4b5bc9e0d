"""The options --url and --api-key of the client commands."""

from typing import Annotated, Final

import typer

from ringback.client import RingbackClient

URL_DEFAULT: Final = "http://127.0.0.1:8090"

Url = Annotated[str, typer.Option("--url", envvar="RINGBACK_URL", help="The URL of the service.")]
ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar="RINGBACK_API_KEY", help="Your API key. Not needed if authentication is off."),
]


def create_client(url: str, api_key: str | None) -> RingbackClient:
    try:
        return RingbackClient(url, api_key=api_key or None)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
