-- oldest code: 15
-- How upstreams presented themselves to principals with credentials of their own, and what they listed to them.
CREATE TABLE owned_catalog (
    owner      TEXT NOT NULL,
    upstream   TEXT NOT NULL,
    part       TEXT NOT NULL,
    body       TEXT NOT NULL,
    fetched_at INTEGER NOT NULL,
    PRIMARY KEY (owner, upstream, part)
) STRICT;

CREATE INDEX owned_catalog_of_upstream ON owned_catalog (upstream);
CREATE INDEX owned_catalog_by_age ON owned_catalog (fetched_at);
