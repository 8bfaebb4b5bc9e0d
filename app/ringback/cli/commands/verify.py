"""`ringback verify`: verifies a callback that was saved to a file."""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import httpx
import typer

from ringback.cli.output import (
    EXIT_NO_RESULT,
    AsJson,
    exit_on_errors,
    exit_with_error,
    print_json,
    print_message,
    print_output,
)
from ringback.cli.stored_request import StoredRequest, UnreadableRequest, parse_headers, parse_request, verify_signature
from ringback.receiver import VerificationError, VerifiedMessage, public_keys_from_jwks
from ringback.signing.secrets import InvalidSecret
from ringback.signing.standard_webhooks import TOLERANCE_SECONDS, check_secret

FILE_BYTES_MAX: Final = 1024 * 1024
"""A callback has at most 64 KiB of headers and 272 KiB of body; a set of keys is far smaller."""
JWKS_TIMEOUT_SECONDS: Final = 10.0
STANDARD_INPUT: Final = "-"


@exit_on_errors(UnreadableRequest)
def verify(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="A request as it was received: headers, an empty line, the raw body. `-`: standard input.",
        ),
    ] = None,
    *,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret",
            envvar="RINGBACK_CALLBACK_SECRET",
            help="The webhook's signing secret, whsec_…, or a public key, whpk_…. May be repeated.",
        ),
    ] = None,
    jwks: Annotated[
        str | None,
        typer.Option(
            "--jwks",
            metavar="FILE|URL",
            help="The sender's public keys, such as SERVICE/.well-known/mcp-webhook-jwks.json.",
        ),
    ] = None,
    body: Annotated[str | None, typer.Option("--body", metavar="FILE", help="A file with the raw body only.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="'NAME: VALUE'", help="With --body: a header. May be repeated."),
    ] = None,
    max_age: Annotated[
        float | None,
        typer.Option(
            "--max-age", min=0, help=f"Reject an older request. A receiver's limit is {TOLERANCE_SECONDS} seconds."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the signature of a callback that was saved to a file. If it is invalid, says why and exits with 1."""
    request = _read_request(file, body, header or [])
    secrets = _parse_secrets(secret or []) + (_read_public_keys(jwks) if jwks else [])
    if not secrets:
        raise typer.BadParameter("give --secret, or --jwks with the sender's public keys")
    now = datetime.now(UTC)  # noqa: TID251 - the command's clock: an edge, like a receiver's
    try:
        message = verify_signature(request, secrets, now=now)
    except VerificationError as error:
        _exit_invalid(str(error), as_json=as_json)
    age = timedelta(seconds=round(now.timestamp()) - message.timestamp)
    if max_age is not None and abs(age.total_seconds()) > max_age:
        reason = f"The signature is valid, but {_describe_age(age)}; --max-age allows {max_age:g} seconds."
        _exit_invalid(reason, as_json=as_json)
    _print_valid(request, message, age, as_json=as_json)


def _read_request(file: str | None, body: str | None, headers: Sequence[str]) -> StoredRequest:
    if (file is None) == (body is None):
        raise typer.BadParameter("give FILE with the whole request, or --body FILE with --header 'NAME: VALUE'")
    if body is not None:
        return StoredRequest(parse_headers(headers), _read_file(body))
    request = parse_request(_read_file(file or STANDARD_INPUT))
    return StoredRequest({**request.headers, **parse_headers(headers)}, request.body)


def _read_file(name: str) -> bytes:
    if name == STANDARD_INPUT:
        if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - so it is if the descriptor is closed
            exit_with_error("Standard input is closed. Give the name of a file.")
        text = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
    else:
        with Path(name).open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        exit_with_error(f"{name} is larger than a callback: {FILE_BYTES_MAX} bytes. Save one request only.")
    return text


def _parse_secrets(secrets: Sequence[str]) -> list[str]:
    for secret in secrets:
        try:
            check_secret(secret)
        except InvalidSecret as error:
            raise typer.BadParameter(str(error), param_hint="--secret") from None
    return list(secrets)


def _read_public_keys(source: str) -> list[str]:
    text = asyncio.run(_fetch(source)) if source.startswith(("http://", "https://")) else _read_file(source)
    try:
        return public_keys_from_jwks(text)
    except (ValueError, RecursionError):
        exit_with_error(
            f"{source} is not a set of Ed25519 keys (a JSON Web Key Set). If its sender signs with secrets only, give --secret."
        )


async def _fetch(url: str) -> bytes:
    text = b""
    try:
        async with (
            asyncio.timeout(JWKS_TIMEOUT_SECONDS),  # httpx limits each read only
            httpx.AsyncClient(timeout=JWKS_TIMEOUT_SECONDS) as http,
            http.stream("GET", url) as response,
        ):
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                text += chunk
                if len(text) > FILE_BYTES_MAX:
                    exit_with_error(f"{url} is no set of keys: it is larger than {FILE_BYTES_MAX} bytes.")
    except TimeoutError:
        exit_with_error(
            f"The keys could not be read from {url} within {JWKS_TIMEOUT_SECONDS:g} s. Try again, or save them to a file "
            "(--jwks FILE)."
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        exit_with_error(
            f"The keys could not be read from {url}. Check the URL, or save them to a file (--jwks FILE). The reason: {error}"
        )
    return text


def _exit_invalid(reason: str, *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"valid": False, "reason": reason})
    else:
        print_message(f"Invalid: {reason}")
    raise typer.Exit(EXIT_NO_RESULT)


def _print_valid(request: StoredRequest, message: VerifiedMessage, age: timedelta, *, as_json: bool) -> None:
    content = _describe_body(request.body)
    if as_json:
        facts = {"webhook_id": message.message_id, "timestamp": message.timestamp, "age_seconds": age.total_seconds()}
        print_json({"valid": True, **facts, **content})
        return
    print_output(f"valid: {message.message_id} {' '.join(str(value) for value in content.values())}".rstrip())
    if abs(age.total_seconds()) > TOLERANCE_SECONDS:
        print_message(f"Now {_describe_age(age)}: a receiver rejects it after {TOLERANCE_SECONDS} seconds.")


def _describe_age(age: timedelta) -> str:
    return f"it is {age} old" if age >= timedelta(0) else f"its timestamp is {-age} ahead of this clock"


def _describe_body(body: bytes) -> dict[str, Any]:
    """The name of the event or the control envelope, and the call's id."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    match document:
        case {"name": str() as name, "data": {"call_id": str() as call_id}}:
            return {"name": name, "call_id": call_id}
        case {"name": str() as name} | {"type": str() as name}:
            return {"name": name}
        case _:
            return {}
