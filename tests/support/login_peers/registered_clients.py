"""Registered OAuth clients without a store."""

from ringback.domain.upstream_logins import RegisteredClient


class KeptClients:
    """The registered clients, in memory."""

    def __init__(self) -> None:
        self.saved: dict[tuple[str, str], RegisteredClient] = {}

    async def get(self, issuer: str, redirect_uri: str) -> RegisteredClient | None:
        return self.saved.get((issuer, redirect_uri))

    async def save(self, registered: RegisteredClient) -> None:
        self.saved[registered.issuer, registered.redirect_uri] = registered

    async def forget(self, issuer: str, redirect_uri: str, client_id: str) -> None:
        if (found := self.saved.get((issuer, redirect_uri))) and found.client.client_id == client_id:
            del self.saved[issuer, redirect_uri]
