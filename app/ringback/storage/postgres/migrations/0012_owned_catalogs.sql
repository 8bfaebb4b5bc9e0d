-- oldest code: 6
-- How upstreams presented themselves to principals with credentials of their own, and what they listed to them.
CREATE TABLE owned_catalog (
    owner      text COLLATE "C" NOT NULL,
    upstream   text COLLATE "C" NOT NULL,
    part       text COLLATE "C" NOT NULL,
    body       text COLLATE "C" NOT NULL,
    fetched_at bigint NOT NULL,
    PRIMARY KEY (owner, upstream, part)
);

CREATE INDEX owned_catalog_of_upstream ON owned_catalog (upstream);
CREATE INDEX owned_catalog_by_age ON owned_catalog (fetched_at);
