"""The receiver's routes in a FastAPI application. FastAPI is imported when they are made."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter

    from ringback.receiver.app import ReceiverApp


def create_router(receiver: "ReceiverApp", path: str) -> "APIRouter":
    """The path with and without a slash at its end: FastAPI answers 307 to the other spelling of a single route.

    The routes are plain ASGI, so FastAPI reads no body, and dependencies of the application do not apply to callbacks.
    """
    try:
        from fastapi import APIRouter  # noqa: PLC0415 - optional: the receiver needs no framework
        from starlette.routing import Route  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ImportError("ReceiverApp.router() and add_to() need FastAPI: pip install fastapi") from error
    if not path.startswith("/"):
        raise ValueError("The path of callbacks must start with a slash, such as /callbacks.")
    spellings = sorted({path.rstrip("/") or "/", path.rstrip("/") + "/"})
    return APIRouter(
        routes=[Route(spelling, receiver, methods=["POST"], include_in_schema=False) for spelling in spellings],
        lifespan=receiver.lifespan,
    )
