"""The types of the fields of an entry: their rules, and the words of their errors."""

import re
from typing import Annotated, Any, Final, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from ringback.domain import meta
from ringback.domain.call import RerunPolicy
from ringback.domain.upstreams import DisconnectAction, PendingForm
from ringback.domain.validation import is_loopback
from ringback.upstreams.config.expansion import (
    FIELD_ERROR,
    SHOWN_NAME_LENGTH_MAX,
    expand_placeholders,
    make_field_error,
)
from ringback.upstreams.config.models import INLINE_WAIT_SECONDS_MAX, META_WILDCARD

TEXT_RULE: Final = "a text that is not empty"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 §5.6.2, a token
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")


def must_be(rule: str) -> WrapValidator:
    """Replaces pydantic's words for a wrong type or range by `must be …`."""

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            if any(each["type"] == FIELD_ERROR for each in error.errors(include_url=False)):
                raise
            raise make_field_error(f"must be {rule}") from None

    return WrapValidator(validate)


def check_object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise make_field_error("must be an object")
    return cast("dict[str, Any]", value)


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise make_field_error(f"must be {TEXT_RULE}")
    return text


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise make_field_error("must be an http:// or https:// URL with a host")
    return url


def check_confidential(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise make_field_error("must be https://: a secret is sent there")
    return url


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            shown = name[:SHOWN_NAME_LENGTH_MAX]
            raise make_field_error(
                f"holds '{shown}', which is no valid HTTP header: one line of visible ASCII characters"
            )
    return headers


def check_meta_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    for key in keys:
        shown = key[:SHOWN_NAME_LENGTH_MAX]
        if not key or META_WILDCARD in key[:-1]:
            raise make_field_error(f"holds '{shown}'; write keys, or how they begin and then '*', for example 'acme/*'")
        if meta.is_reserved_meta_key(key) or key.startswith(meta.RINGBACK_META_PREFIX):
            raise make_field_error(f"names '{shown}', which never goes upstream; leave it out")
    return keys


Item = Annotated[str, Strict(), AfterValidator(expand_placeholders)]
Text = Annotated[
    str, Strict(), must_be(TEXT_RULE), AfterValidator(_check_not_blank), AfterValidator(expand_placeholders)
]
Url = Annotated[Text, AfterValidator(_check_url)]
Texts = Annotated[tuple[Item, ...], must_be("a list of texts; quote numbers")]
TextMap = Annotated[dict[str, Item], must_be("an object of texts; quote numbers and true/false")]
Bool = Annotated[bool, Strict(), must_be("true or false")]
Seconds = Annotated[
    float | None,
    Strict(),
    Field(ge=0, le=INLINE_WAIT_SECONDS_MAX),
    must_be(f"a number of seconds from 0 to {INLINE_WAIT_SECONDS_MAX:g}"),
]
ServerId = Annotated[
    str | None,
    Strict(),
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
    must_be("1 to 64 letters, digits, '.', '_' and '-', and begin with a letter or a digit"),
]
"""Literal, without placeholders: all nodes must have the same one."""

OnDisconnect = Annotated[DisconnectAction | None, must_be(f"one of {', '.join(DisconnectAction)}")]
PendingResult = Annotated[PendingForm, must_be(f"one of {', '.join(PendingForm)}")]
Rerun = Annotated[RerunPolicy, must_be(f"one of {', '.join(RerunPolicy)}")]
