-- oldest code: 10
-- The calls that wait until their owner signs in to an upstream. A call without a row here, which a node of an older version
-- parked, does not exist: older code ends such a call. `tokens_version` is that of the tokens that did not suffice; 0 if there were none.
CREATE TABLE login_waits (
    call_id        text COLLATE "C" PRIMARY KEY,
    upstream       text COLLATE "C" NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    tokens_version bigint NOT NULL
);

CREATE INDEX login_waits_of_owner ON login_waits (upstream, owner, tokens_version, call_id);

-- The logins after which more calls wait than one transaction queues.
CREATE TABLE login_resumptions (
    upstream       text COLLATE "C" NOT NULL,
    owner          text COLLATE "C" NOT NULL,
    tokens_version bigint NOT NULL,
    worked_at      bigint NOT NULL,
    PRIMARY KEY (upstream, owner)
);

CREATE INDEX login_resumptions_in_turn ON login_resumptions (worked_at);
