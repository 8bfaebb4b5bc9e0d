"""Names that no served upstream has: entries of the configuration that are skipped, and the error for unknown names."""

from ringback.domain.errors import NotFound
from ringback.domain.principal import Caller
from ringback.domain.upstreams import SkippedUpstream, ToolCatalog
from ringback.suggestions import suggest_name


def find_skipped(catalog: ToolCatalog, upstream: str) -> SkippedUpstream | None:
    """The entry of the configuration that would have this name and is not served."""
    if catalog.has_upstream(upstream):
        return None
    return next((each for each in catalog.list_skipped() if each.name == upstream), None)


def make_not_found(catalog: ToolCatalog, caller: Caller, upstream: str) -> NotFound:
    """The error for an upstream that is not served, or that the caller's key may not use."""
    if caller.may_use_upstream(upstream) and (skipped := find_skipped(catalog, upstream)) is not None:
        return NotFound(skipped.describe())
    names = (each.name for each in catalog.list_upstreams() if caller.may_use_upstream(each.name))
    return NotFound(f"There is no upstream '{upstream}'.{suggest_name(upstream, names)} List them: GET /v1/upstreams")
