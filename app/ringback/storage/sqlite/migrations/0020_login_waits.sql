-- oldest code: 19
-- The calls that wait until their owner signs in to an upstream. A call without a row here, which a node of an older version
-- parked, does not exist: older code ends such a call. `tokens_version` is that of the tokens that did not suffice; 0 if there were none.
CREATE TABLE login_waits (
    call_id        TEXT PRIMARY KEY REFERENCES calls (id) ON DELETE CASCADE,
    upstream       TEXT NOT NULL,
    owner          TEXT NOT NULL,
    tokens_version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX login_waits_of_owner ON login_waits (upstream, owner, tokens_version, call_id);

-- The logins after which more calls wait than one transaction queues.
CREATE TABLE login_resumptions (
    upstream       TEXT NOT NULL,
    owner          TEXT NOT NULL,
    tokens_version INTEGER NOT NULL,
    worked_at      INTEGER NOT NULL,
    PRIMARY KEY (upstream, owner)
) STRICT, WITHOUT ROWID;

CREATE INDEX login_resumptions_in_turn ON login_resumptions (worked_at);
