"""Style sheet, scripts and icon of the dashboard: files of the package, each at a URL that contains its digest.

A browser keeps them without asking again. A page of another version of the service names another digest; it gets the file of
this version, uncached, because during an upgrade the nodes that answer differ.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.errors import NotFound

DIGEST_LENGTH: Final = 16
"""Hexadecimal digits of a SHA-256."""
_CONTENT_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VendoredFile:
    """A file of another project, unchanged."""

    package: str
    """Its name and version in the npm registry."""
    licence: str
    sha256: str


VENDORED_FILES: Final[Mapping[str, VendoredFile]] = {
    "htmx-2.0.11.min.js": VendoredFile(
        package="htmx.org@2.0.11",
        licence="0BSD",
        sha256="d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    ),
    "htmx-ext-sse-2.2.4.min.js": VendoredFile(
        package="htmx-ext-sse@2.2.4",
        licence="0BSD",
        sha256="98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136",
    ),
}
OWN_FILES: Final = ("ringback.css", "ringback.js", "icon.svg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    content: bytes
    content_type: str
    digest: str


def _read_asset(name: str) -> Asset:
    content = files("ringback.ui").joinpath("static", name).read_bytes()
    return Asset(
        content=content,
        content_type=_CONTENT_TYPES[name.rpartition(".")[2]],
        digest=hashlib.sha256(content).hexdigest()[:DIGEST_LENGTH],
    )


ASSETS: Final = {name: _read_asset(name) for name in (*OWN_FILES, *VENDORED_FILES)}


def asset_path(name: str) -> str:
    """The path of an asset below the dashboard's path. Raises `KeyError` for a file that is none."""
    return f"/assets/{ASSETS[name].digest}/{name}"


async def send_asset(request: Request) -> Response:
    asset = ASSETS.get(request.path_params["file"])
    if asset is None:
        raise NotFound("The dashboard has no such file.")
    is_current = request.path_params["digest"] == asset.digest
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(asset.content, headers=headers, media_type=asset.content_type)


ASSET_ROUTES: Final = (Route("/ui/assets/{digest}/{file}", send_asset, methods=["GET"]),)
