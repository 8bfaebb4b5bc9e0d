"""The clients that Ringback registered at authorization servers."""

from typing import Protocol

from ringback.domain.ports import Store
from ringback.domain.upstream_logins import RegisteredClient


class ClientStore(Protocol):
    async def get(self, issuer: str, redirect_uri: str) -> RegisteredClient | None: ...

    async def save(self, registered: RegisteredClient) -> None: ...

    async def forget(self, issuer: str, redirect_uri: str, client_id: str) -> None: ...


class StoredClients:
    """Implements `ClientStore` over the service's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, issuer: str, redirect_uri: str) -> RegisteredClient | None:
        return await self._store.read(lambda tx: tx.oauth_clients.get(issuer, redirect_uri, now=tx.now()))

    async def save(self, registered: RegisteredClient) -> None:
        await self._store.write(lambda tx: tx.oauth_clients.save(registered))

    async def forget(self, issuer: str, redirect_uri: str, client_id: str) -> None:
        await self._store.write(lambda tx: tx.oauth_clients.delete(issuer, redirect_uri, client_id))


class NoClients:
    """Implements `ClientStore` for a process without a store, which has no logins."""

    async def get(self, issuer: str, redirect_uri: str) -> RegisteredClient | None:  # noqa: ARG002 - the port's names
        return None

    async def save(self, registered: RegisteredClient) -> None: ...

    async def forget(self, issuer: str, redirect_uri: str, client_id: str) -> None: ...
