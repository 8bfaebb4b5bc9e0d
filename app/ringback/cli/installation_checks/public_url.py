"""The checks of `ringback doctor` on what lies behind the public URL: a proxy must send each of these routes to the service.

{public URL}/healthz                                        and the same of the process, which separates the proxy's faults
{public URL}/openapi.json                                   names the public URL of the running service
{public URL}/v1/resume                                      where callbacks lead
{public URL}/problems/{slug}                                where the type of a problem leads
{host}/.well-known/oauth-protected-resource{path}/mcp       where OAuth clients look, outside the path (RFC 9728 §3.1)
"""

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urljoin

import httpx

from ringback.bootstrap import build_protected_resource, load_authorities, names_itself_in_callbacks
from ringback.cli.http_clients import bypass_proxy_here, request_within_limit
from ringback.cli.installation_checks.database import Finding, fault, fine
from ringback.client.problems import PROBLEM_MEDIA_TYPE
from ringback.domain.protected_resource import MCP_RESOURCE
from ringback.settings import Settings

CHECK_TIMEOUT_SECONDS: Final = 5.0
ABOUT: Final = "public paths"


def open_public_http(settings: Settings, process_url: str) -> httpx.AsyncClient:
    """A client that trusts what the service trusts: a private authority may sign the proxy's certificate."""
    tls = load_authorities(settings).add_to(httpx.create_ssl_context())
    mounts = bypass_proxy_here(settings.base_url, process_url)
    return httpx.AsyncClient(verify=tls, timeout=CHECK_TIMEOUT_SECONDS, mounts=mounts)


async def check_public_url(settings: Settings, process_url: str, *, is_responding: bool = True) -> Finding:
    """Whether the URL in callbacks leads to a Ringback from here, and if not, whether the proxy or the process fails.

    `is_responding`: the process is known to respond. Without a public URL, another one is not asked.
    """
    if settings.public_url is None:
        detail = await _describe_own_url(settings, process_url, is_responding=is_responding)
        if names_itself_in_callbacks(settings):
            detail += ". With several nodes, set RINGBACK_PUBLIC_URL to the URL at which clients reach all of them"
        return fine("public URL", detail)
    async with open_public_http(settings, process_url) as http:
        failure = await _find_failure(http, settings.base_url)
        if failure is None:
            return fine("public URL", f"{settings.base_url} leads to a Ringback")
        said = f"{settings.base_url} {failure}"
        if process_url == settings.base_url:
            return fault("public URL", f"{said}. Check DNS and the proxy.")
        process_failure = await _find_failure(http, process_url)
    if process_failure is None:
        return fault("public URL", f"{said}, but the process responds at {process_url}. Check DNS and the proxy.")
    return fault("public URL", f"{said}, and the process at {process_url} {process_failure}. Check both.")


async def _describe_own_url(settings: Settings, process_url: str, *, is_responding: bool) -> str:
    """What callbacks contain without a public URL: the service says it, because it may have other settings than these."""
    named = await _fetch_named_url(settings, process_url) if is_responding else None
    if named is None:
        return f"none is set; what callbacks contain is not known, because {process_url} does not say it"
    return f"none is set; callbacks contain {named}"


async def _fetch_named_url(settings: Settings, process_url: str) -> str | None:
    async with open_public_http(settings, process_url) as http:
        try:
            return _read_named_url(await request_within_limit(http, "GET", f"{process_url}/openapi.json"))
        except (httpx.HTTPError, httpx.InvalidURL):
            return None


async def _find_failure(http: httpx.AsyncClient, url: str) -> str | None:
    """Why the URL does not lead to a Ringback; None if it does."""
    try:
        response = await request_within_limit(http, "GET", f"{url}/healthz")
    except (httpx.HTTPError, httpx.InvalidURL) as problem:
        return f"is unreachable ({type(problem).__name__})"
    is_ours = response.is_success and _parse_object(response).get("status") == "ok"
    return None if is_ours else f"responds with {response.status_code}, and not as Ringback"


async def check_public_paths(settings: Settings) -> list[Finding]:
    """One finding about the routes below the public URL, if one is set and its host responds."""
    if settings.public_url is None:
        return []
    async with open_public_http(settings, settings.process_url) as http:
        try:
            faults = [await _check_document(http, settings.base_url)]
        except httpx.HTTPError:
            return []  # the finding about the public URL says so
        faults += [await _check_resume_url(http, settings.base_url), await _check_metadata(http, settings)]
    found = [fault for fault in faults if fault]
    if found:
        return [fault(ABOUT, " ".join(found))]
    return [fine(ABOUT, "resume_url, problem types and metadata lead to this service")]


async def _check_document(http: httpx.AsyncClient, base_url: str) -> str:
    named = _read_named_url(await request_within_limit(http, "GET", f"{base_url}/openapi.json"))
    if named is None:
        return f"{base_url}/openapi.json does not come from Ringback. Let the proxy send all of {base_url}/ to it."
    return "" if named == base_url else f"{base_url} leads to a service whose RINGBACK_PUBLIC_URL is {named}."


def _read_named_url(response: httpx.Response) -> str | None:
    """The URL that the service names as its own in its document; None for another document."""
    match _parse_object(response).get("servers"):
        case [{"url": str() as named}, *_]:
            return named
        case _:
            return None


async def _check_resume_url(http: httpx.AsyncClient, base_url: str) -> str:
    """Without a key and a token, the service responds with a problem, whose type leads to its meaning."""
    url = f"{base_url}/v1/resume"
    refusal = await _request(http, "POST", url, json={})
    if refusal is None or refusal.headers.get("content-type") != PROBLEM_MEDIA_TYPE:
        said = "no response" if refusal is None else f"{refusal.status_code}, and not from Ringback"
        return f"POST {url} gets {said}. Let the proxy send every method."
    type_url = urljoin(url, str(_parse_object(refusal).get("type")))
    found = await _request(http, "GET", type_url)
    if found is None or found.status_code != HTTPStatus.OK:
        return f"{type_url}, the type of a problem, leads elsewhere. Set the same RINGBACK_PUBLIC_URL for the service."
    return ""


async def _check_metadata(http: httpx.AsyncClient, settings: Settings) -> str:
    resource = build_protected_resource(settings)
    if resource is None:
        return ""
    url = resource.metadata_url(MCP_RESOURCE)
    response = await _request(http, "GET", url)
    if response is not None and _parse_object(response).get("resource") == resource.resource_url(MCP_RESOURCE):
        return ""
    return f"OAuth clients look at {url}, which is not this service's. Let the proxy send this path to it too."


async def _request(http: httpx.AsyncClient, method: str, url: str, **content: Any) -> httpx.Response | None:
    """The response; None if there is none, as for `about:blank`, which other services name as the type of their problems."""
    try:
        return await request_within_limit(http, method, url, **content)
    except (httpx.HTTPError, httpx.InvalidURL):
        return None


def _parse_object(response: httpx.Response) -> dict[str, Any]:
    try:
        document: Any = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}  # pyright: ignore[reportUnknownVariableType] - keys are strings
