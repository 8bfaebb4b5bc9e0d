"""HTML pages without scripts: templates of the package that escape what they insert, and headers that allow nothing else."""

import hashlib
from base64 import b64encode
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

_TEMPLATES: Final = Environment(
    loader=PackageLoader("ringback.api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_STYLE: Final = _TEMPLATES.get_template("login.css").render()
_STYLE_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Only the style sheet of the page. A form posts to this service: where a browser goes next is a link of the response."""

PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def render_page(template: str, *, status_code: int = 200, referrer: str = "no-referrer", **values: object) -> Response:
    """`referrer` is the Referrer-Policy. With `no-referrer`, browsers send `Origin: null` with a form of the page."""
    html = _TEMPLATES.get_template(template).render(values)
    headers = {**PAGE_HEADERS, "Referrer-Policy": referrer}
    return Response(html, status_code=status_code, headers=headers, media_type="text/html")
