"""The query of a page: reads the filters of a list, with the checks of the REST API, and writes links."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from ringback.domain.clock import format_iso
from ringback.domain.errors import InvalidRequest
from ringback.schemas.validation_errors import describe_validation_errors

T = TypeVar("T", bound=BaseModel)

ERRORS_SHOWN_MAX: Final = 3
KEPT_LENGTH_MAX: Final = 256
NAME_LENGTH_MAX: Final = 40
"""Characters of a name that an error repeats: a URL may have any."""
_PAGE_PARAMETERS: Final = frozenset({"principal", "cursor", "limit", "q", "done", "sent"})
"""What the URL of a list may have beside its filters: the owner, the place in the list, a search, and a notice."""
_LOCAL_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?")
"""What an input of the type `datetime-local` sends. Pages ask for UTC."""


def read_query(request: Request, model: type[T], *, ignored: Collection[str] = ()) -> T:
    """The members of `model` in the query. Empty fields of a form count as absent, and so do the `ignored` ones.

    Raises `InvalidRequest` for unknown filters and for values, which the REST API refuses too.
    """
    require_known_filters(request.query_params, model.model_fields)
    values = {name: value for name, value in request.query_params.items() if name not in ignored}
    return validate(model, read_filled_fields(values, model))


def require_known_filters(values: Iterable[str], filters: Collection[str]) -> None:
    """Raise `InvalidRequest` for a parameter that is no filter: the list would show other rows than its URL says."""
    for name in values:
        if name not in filters and name not in _PAGE_PARAMETERS:
            shown = "".join(filter(str.isprintable, name))[:NAME_LENGTH_MAX]
            known = ", ".join(sorted({*filters, "principal"} - {"cursor", "limit"}))
            raise InvalidRequest(f"There is no filter '{shown}'. The filters are: {known}.")


def read_filled_fields(values: Mapping[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """The members of `model` that a query or a form has and that are not empty, with UTC for times without an offset."""
    filled = {name: value.strip() for name, value in values.items() if name in model.model_fields and value.strip()}
    for name, value in filled.items():
        if not value.isprintable():
            raise InvalidRequest(f"{name}: use printable characters only.")
    return {name: f"{value}Z" if _LOCAL_TIME.fullmatch(value) else value for name, value in filled.items()}


def list_filters(query: BaseModel) -> dict[str, str]:
    """The members of the query that select rows, as text for links and hidden fields: without cursor and page size."""
    values = query.model_dump(exclude={"cursor", "limit"}, exclude_none=True, exclude_defaults=True)
    return {name: format_iso(value) if isinstance(value, datetime) else str(value) for name, value in values.items()}


def keep_fields(values: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """What a form was sent with, refused values too, so that its page shows it again: printable, and not too long."""
    texts = {name: values.get(name, "").strip()[:KEPT_LENGTH_MAX] for name in names}
    return {name: "".join(filter(str.isprintable, text)) for name, text in texts.items() if text}


def keep_filters(request: Request, model: type[BaseModel]) -> dict[str, str]:
    """As `keep_fields`, for the members that select rows."""
    return keep_fields(request.query_params, set(model.model_fields) - {"cursor", "limit"})


def validate(model: type[T], values: Mapping[str, Any]) -> T:
    """Raises `InvalidRequest` with the first errors."""
    try:
        return model.model_validate(values)
    except ValidationError as problem:
        errors = describe_validation_errors(problem, errors_max=ERRORS_SHOWN_MAX, model=model)
        raise InvalidRequest(". ".join(errors)) from None


def with_query(path: str, values: Mapping[str, object]) -> str:
    """The path with those of these values that are neither None nor empty. An empty path gives a query alone, or nothing."""
    filled = {name: str(value) for name, value in values.items() if value not in {None, ""}}
    return f"{path}?{urlencode(filled)}" if filled else path
