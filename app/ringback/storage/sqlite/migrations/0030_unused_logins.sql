-- oldest code: 20
-- The upstreams that a configuration does not have any more, although there are tokens for them. A node of an older version removes
-- no tokens.
CREATE TABLE unused_logins (
    upstream     TEXT PRIMARY KEY,
    unused_since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX unused_logins_due ON unused_logins (unused_since);
