-- oldest code: 6
-- Logins to upstreams by OAuth. A node of an older version uses no tokens, and its janitor erases none: sign in to upstreams, and
-- erase principals, once all nodes have this version.

-- Attempts to sign in: each is deleted when its browser comes back, or when it expires. `request` is sealed.
CREATE TABLE upstream_logins (
    id         text COLLATE "C" PRIMARY KEY,
    state_hash text COLLATE "C" NOT NULL,
    upstream   text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    principal  text COLLATE "C" NOT NULL,
    key_id     text COLLATE "C",
    request    bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL
);

ALTER TABLE upstream_logins ALTER principal SET (n_distinct = -0.1);  -- each principal has at most ten

CREATE UNIQUE INDEX upstream_logins_of_state ON upstream_logins (state_hash);
CREATE INDEX upstream_logins_of_principal ON upstream_logins (principal, expires_at);
CREATE INDEX upstream_logins_expiring ON upstream_logins (expires_at);

-- The tokens of one owner for one upstream; the service's own have the empty owner. `id` is `upstream/owner`. `secrets` is sealed: the
-- tokens, the client, and the URL that gets them.
CREATE TABLE upstream_tokens (
    id             text COLLATE "C" PRIMARY KEY,
    upstream       text COLLATE "C" NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    version        bigint NOT NULL,
    issuer         text COLLATE "C" NOT NULL,
    resource       text COLLATE "C" NOT NULL,
    scope          text COLLATE "C",
    required_scope text COLLATE "C",
    obtained_at    bigint NOT NULL,
    expires_at     bigint,
    logged_in_by   text COLLATE "C" NOT NULL,
    secrets        bytea NOT NULL
);

ALTER TABLE upstream_tokens ALTER secrets SET STORAGE EXTERNAL;  -- sealed bytes cannot be compressed

CREATE INDEX upstream_tokens_of_owner ON upstream_tokens (owner, upstream);

-- Clients that Ringback registered at authorization servers (RFC 7591). `id` is the issuer, a space, and the redirect URI. `client` is
-- sealed.
CREATE TABLE oauth_clients (
    id           text COLLATE "C" PRIMARY KEY,
    issuer       text COLLATE "C" NOT NULL,
    redirect_uri text COLLATE "C" NOT NULL,
    client       bytea NOT NULL,
    created_at   bigint NOT NULL,
    expires_at   bigint
);
