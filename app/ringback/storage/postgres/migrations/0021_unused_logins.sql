-- oldest code: 11
-- The upstreams that a configuration does not have any more, although there are tokens for them. A node of an older version removes
-- no tokens.
CREATE TABLE unused_logins (
    upstream     text COLLATE "C" PRIMARY KEY,
    unused_since bigint NOT NULL
);

CREATE INDEX unused_logins_due ON unused_logins (unused_since);
