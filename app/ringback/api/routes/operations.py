"""Health, readiness, signing keys, problem types and OAuth metadata. These operations need no key.

Monitors and `wget --spider` probe with HEAD, so health and readiness answer it too.
"""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse

from ringback.api.context import ServicesDep, get_config
from ringback.api.http_errors import UnknownPath
from ringback.api.problems import iterate_error_types, problem_responses, problem_type, status_for
from ringback.api.public_path import read_public_path
from ringback.domain import errors
from ringback.domain.protected_resource import MCP_RESOURCE, WELL_KNOWN_PATH, parse_bearer_token
from ringback.schemas.operations import HealthView, JwkSetView, ProblemTypeView, ReadinessView

DEGRADED_KEYS: Final = "RINGBACK_SECRET_KEYS"
"""What readiness lists while other nodes seal with a key that this node does not have."""
DEGRADED_CLOCK: Final = "clock"
DEGRADED_ROLE: Final = "role "
"""Before the name of a role that no node runs."""
SIGNING_KEYS_MAX_AGE_SECONDS: Final = 3600
"""How long receivers may cache the public keys. During a rotation, both keys sign for longer than this."""

METADATA_MAX_AGE_SECONDS: Final = 3600
"""How long clients may cache the metadata of a protected resource. It changes only with the settings."""

router = APIRouter(tags=["operations"])


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz", responses=problem_responses())
async def check_health() -> HealthView:
    """Responds while the process runs."""
    return HealthView()


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=problem_responses(errors.ShuttingDown, errors.StoreUnavailable))
async def check_readiness(request: Request, services: ServicesDep) -> ReadinessView:
    """Responds with 200 while this node works: no shutdown, a writable database, and running workers.

    `roles` has this node's roles, and whether each works. No role works without the database.
    `degraded` lists the MCP endpoints that failed and are being restarted, `RINGBACK_SECRET_KEYS` while other nodes have
    a key that this one does not have, and `clock` for some minutes after a start at which the clock is more than a day ahead of
    the last process: until then nothing expires, is given up or times out. It lists `role runner` while a queued call,
    `role dispatcher` while a due callback, and `role janitor` while a call whose process died, has waited for a minute and no
    node runs that role. They do not change the status, because a load balancer would then also remove the REST API and all
    other endpoints.
    """
    config = get_config(request)
    roles = config.roles_ready()
    try:
        await services.insights.require_ready()
        lacks_keys = await services.insights.lacks_keys()
        missing_roles = await services.insights.find_missing_roles()
    except errors.Unavailable as problem:
        problem.extra["roles"] = dict.fromkeys(roles, False)
        raise
    if failing := sorted(config.failing_workers()):
        raise errors.Unavailable(
            f"Not ready: {', '.join(failing)} failed and is being restarted.", failing=failing, roles=roles
        )
    degraded = set(config.failing_endpoints())
    if lacks_keys:
        degraded.add(DEGRADED_KEYS)
    degraded.update(f"{DEGRADED_ROLE}{role}" for role in missing_roles)
    if not config.has_confirmed_clock():
        degraded.add(DEGRADED_CLOCK)
    return ReadinessView(degraded=sorted(degraded), roles=roles)


@router.get("/.well-known/mcp-webhook-jwks.json", responses=problem_responses())
async def read_signing_keys(request: Request, response: Response) -> JwkSetView:
    """The public keys that verify the `v1a` signatures of callbacks. Fetch them again if none of them verifies one."""
    response.headers["Cache-Control"] = f"public, max-age={SIGNING_KEYS_MAX_AGE_SECONDS}"
    return JwkSetView.from_keys(get_config(request).public_keys)


@router.get("/problems/{slug}", responses=problem_responses(errors.NotFound))
async def read_problem_type(
    request: Request,
    slug: Annotated[str, Path(description="The last part of a problem's type.", examples=["unknown-tool"])],
) -> ProblemTypeView:
    """The meaning of a problem type."""
    kind = next((kind for kind in iterate_error_types() if kind.slug == slug), None)
    if kind is None:
        raise errors.NotFound("This problem type does not exist.")
    type_ = read_public_path(get_config(request).public_url) + problem_type(kind)
    return ProblemTypeView(type=type_, title=kind.title(), status=status_for(kind))


@router.get(WELL_KNOWN_PATH, include_in_schema=False)
@router.get(WELL_KNOWN_PATH + "/{suffix:path}", include_in_schema=False)
async def describe_protected_resource(request: Request, suffix: str = "") -> JSONResponse:
    """The authorization server of a protected resource, for OAuth clients (RFC 9728 §3.2)."""
    oauth = get_config(request).oauth
    document = oauth.metadata_document(f"/{suffix}" if suffix else "") if oauth else None
    if document is None:
        raise UnknownPath("There is no OAuth-protected resource of this name. Use an API key.")
    return JSONResponse(document, headers={"Cache-Control": f"max-age={METADATA_MAX_AGE_SECONDS}"})


@router.post("/register", include_in_schema=False)
async def refuse_registration(request: Request) -> JSONResponse:
    """Return the detail of the 401 to the user of an OAuth client, which shows this response only.

    A client that can log in, such as mcp-remote, drops the text of a 401. If it finds no authorization server, it registers at
    the default endpoint of the service itself (MCP 2025-03-26, Authorization, Fallbacks), with the Authorization header that it
    was given, and shows the error that it gets (RFC 7591 §3.2.2).
    """
    config = get_config(request)
    if config.oauth is not None:
        raise UnknownPath(f"Clients register with the authorization server: {config.oauth.issuer}")
    bearer = parse_bearer_token(request.headers.get("authorization"))
    try:
        await config.authenticator.authenticate(bearer, resource=MCP_RESOURCE)
    except errors.Unauthenticated as refusal:
        body = {"error": "access_denied", "error_description": _format_oauth_text(refusal.detail)}
        return JSONResponse(body, status_code=HTTPStatus.BAD_REQUEST)
    raise UnknownPath("No registration is needed. Send MCP requests to /mcp.")


def _format_oauth_text(text: str) -> str:
    """The text in the characters of an OAuth error description (RFC 6749 §5.2): printable ASCII without quotes."""
    return text.replace("…", "...").replace('"', "'").encode("ascii", "replace").decode("ascii")
