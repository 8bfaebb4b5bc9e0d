-- oldest code: 15
-- Sign-ins to the dashboard, portal links, and the audit log. A node of an older version serves no dashboard and writes no audit
-- log, and its janitor erases no links: erase principals once all nodes have this version.
CREATE TABLE sign_ins (
    id          TEXT PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    principal   TEXT NOT NULL,
    key_id      TEXT,
    scopes      TEXT NOT NULL,
    upstreams   TEXT,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX sign_ins_of_secret ON sign_ins (secret_hash);
CREATE INDEX sign_ins_of_principal ON sign_ins (principal, id);
CREATE INDEX sign_ins_expiring ON sign_ins (expires_at);

CREATE TABLE portal_links (
    id                TEXT PRIMARY KEY,
    secret_hash       TEXT NOT NULL,
    principal         TEXT NOT NULL,
    client_session_id TEXT,
    upstreams         TEXT,
    created_by        TEXT NOT NULL,
    key_id            TEXT,
    created_at        INTEGER NOT NULL,
    expires_at        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX portal_links_of_secret ON portal_links (secret_hash);
CREATE INDEX portal_links_of_principal ON portal_links (principal, id);
CREATE INDEX portal_links_expiring ON portal_links (expires_at);

-- `principal` changed it, `owner` owns it.
CREATE TABLE audit_entries (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    at        INTEGER NOT NULL,
    principal TEXT,
    key_id    TEXT,
    surface   TEXT NOT NULL,
    operation TEXT NOT NULL,
    target    TEXT,
    owner     TEXT,
    detail    TEXT
) STRICT;

CREATE INDEX audit_entries_of_owner ON audit_entries (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX audit_entries_by_age ON audit_entries (at);
