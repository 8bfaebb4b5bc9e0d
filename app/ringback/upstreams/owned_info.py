"""Describes an upstream with several connections, or with none yet, as one upstream."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ringback.domain.upstreams import UpstreamInfo
from ringback.upstreams.config import UpstreamConfig

_STATE_ORDER: Final = ("ready", "unresponsive", "connecting", "failing", "idle")
"""One connection that works shows that the upstream works; one that fails may lack only the login of its owner."""


def merge_infos(config: UpstreamConfig, infos: Sequence[UpstreamInfo], *, faults: Mapping[str, int]) -> UpstreamInfo:
    """`infos` are those of the connections that the reader may see."""
    if infos:
        best = min(infos, key=lambda info: _STATE_ORDER.index(info.state))
        return replace(best, connections=len(infos), calls_in_flight=sum(info.calls_in_flight for info in infos))
    return UpstreamInfo(
        name=config.name,
        configured_name=config.configured_name,
        transport=str(config.transport),
        state="idle",
        credentials=config.credentials if config.takes_login else None,
        connections=0,
        max_concurrent=config.max_concurrent,
        isolation=str(config.isolation),
        trusts_annotations=config.trusts_annotations,
        faults=faults,
    )
