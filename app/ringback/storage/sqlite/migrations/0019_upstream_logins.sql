-- oldest code: 15
-- Logins to upstreams by OAuth. A node of an older version uses no tokens, and its janitor erases none: sign in to upstreams, and
-- erase principals, once all nodes have this version.

-- Attempts to sign in: each is deleted when its browser comes back, or when it expires. `request` is sealed.
CREATE TABLE upstream_logins (
    id         TEXT PRIMARY KEY,
    state_hash TEXT NOT NULL,
    upstream   TEXT NOT NULL,
    owner      TEXT NOT NULL,
    principal  TEXT NOT NULL,
    key_id     TEXT,
    request    BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX upstream_logins_of_state ON upstream_logins (state_hash);
CREATE INDEX upstream_logins_of_principal ON upstream_logins (principal, expires_at);
CREATE INDEX upstream_logins_expiring ON upstream_logins (expires_at);

-- The tokens of one owner for one upstream; the service's own have the empty owner. `id` is `upstream/owner`. `secrets` is sealed: the
-- tokens, the client, and the URL that gets them.
CREATE TABLE upstream_tokens (
    id             TEXT PRIMARY KEY,
    upstream       TEXT NOT NULL,
    owner          TEXT NOT NULL,
    version        INTEGER NOT NULL,
    issuer         TEXT NOT NULL,
    resource       TEXT NOT NULL,
    scope          TEXT,
    required_scope TEXT,
    obtained_at    INTEGER NOT NULL,
    expires_at     INTEGER,
    logged_in_by   TEXT NOT NULL,
    secrets        BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX upstream_tokens_of_owner ON upstream_tokens (owner, upstream);

-- Clients that Ringback registered at authorization servers (RFC 7591). `id` is the issuer, a space, and the redirect URI. `client` is
-- sealed.
CREATE TABLE oauth_clients (
    id           TEXT PRIMARY KEY,
    issuer       TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    client       BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER
) STRICT, WITHOUT ROWID;
