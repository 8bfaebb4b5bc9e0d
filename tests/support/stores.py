"""The stores that the conformance suite runs over. Another store is one more entry of `STORES`."""

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.ports import Store
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.open import open_store

OpenStore = Callable[[Path, Clock], AbstractAsyncContextManager[Store]]
"""Opens an empty store that may keep files in the folder, and closes it at the end."""


def a_sealer() -> AesGcmSealer:
    return AesGcmSealer({"test": b"k" * KEY_BYTES}, current="test", random=os.urandom)


def sqlite_store(folder: Path, clock: Clock) -> AbstractAsyncContextManager[Store]:
    return open_store(f"sqlite:///{folder / 'ringback.db'}", clock=clock, sealer=a_sealer(), exclusive=True)


STORES: Final[dict[str, OpenStore]] = {"sqlite": sqlite_store}
