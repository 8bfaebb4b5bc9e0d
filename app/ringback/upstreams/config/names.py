"""The names of upstreams, from the names in the file: hosts allow `GitHub` and `my server`, and URLs and tool names do not."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ringback.domain.upstreams import SkippedUpstream, SkipReason
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN
from ringback.upstreams.config.expansion import SHOWN_NAME_LENGTH_MAX

NAME_LENGTH_MAX: Final = 24
"""As in `UPSTREAM_NAME_PATTERN`."""
NAME_RULE: Final = "names are 1 to 24 of a-z, 0-9 and '-'"


def map_name(configured: str) -> str | None:
    """The upstream's name for a name of the file; None if it has no letter or digit that an upstream's name may have."""
    if UPSTREAM_NAME_PATTERN.fullmatch(configured):
        return configured
    letters = unicodedata.normalize("NFKD", configured).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")[:NAME_LENGTH_MAX].strip("-") or None


def assign_names(configured: Iterable[str]) -> Mapping[str, str | SkippedUpstream]:
    """The upstream's name of each entry, or why it has none. A name that needs no mapping wins; else the first in the file.

    Names are assigned before anything else is judged: an entry with a fault does not leave its name to another server, which
    would get its calls.
    """
    names = list(configured)
    owners = {name: name for name in names if UPSTREAM_NAME_PATTERN.fullmatch(name)}
    for each in names:
        if (name := map_name(each)) is not None:
            owners.setdefault(name, each)
    return {each: _assign_name(each, owners) for each in names}


def _assign_name(configured: str, owners: Mapping[str, str]) -> str | SkippedUpstream:
    name = map_name(configured)
    if name is None:
        advice = f"{NAME_RULE}; rename it, for example to 'upstream-1'."
        return skip_entry(configured, advice, SkipReason.INVALID_NAME)
    if (owner := owners[name]) != configured:
        advice = f"its name becomes '{name}', which is that of '{clean_name(owner)}'; rename one of them."
        skipped = skip_entry(configured, advice, SkipReason.NAME_CONFLICT)
        return replace(skipped, name=skipped.configured_name)  # the other one has the mapped name
    return name


def skip_entry(configured: str, advice: str, reason: SkipReason) -> SkippedUpstream:
    """The entry as skipped. Its name as written is untrusted text: it is bounded, and without control characters."""
    shown = clean_name(configured)
    return SkippedUpstream(name=map_name(configured) or shown, configured_name=shown, reason=reason, advice=advice)


def clean_name(configured: str) -> str:
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for character in configured[:SHOWN_NAME_LENGTH_MAX]
    )
