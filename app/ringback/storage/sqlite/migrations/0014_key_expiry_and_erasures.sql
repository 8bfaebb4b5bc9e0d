-- oldest code: 10
-- API keys that expire, and which key replaced one. A node of an older version accepts an expired key until it is upgraded.
ALTER TABLE api_keys ADD COLUMN expires_at INTEGER;
ALTER TABLE api_keys ADD COLUMN replaced_by TEXT;

CREATE INDEX api_keys_of_principal ON api_keys (principal, id);

-- Whether the call was erased on request, and has not just expired.
ALTER TABLE tombstones ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;

-- Requests to erase a call, the calls of a client session, or all data of a principal. The janitor works on the one that it has not
-- looked at for longest. `call_id` is the call whose rows it erases now; `seq` is how far its events, or those of the log, are erased.
CREATE TABLE erasures (
    id           TEXT PRIMARY KEY,
    principal    TEXT NOT NULL,
    kind         TEXT NOT NULL,
    target       TEXT NOT NULL,
    cancels      INTEGER NOT NULL,
    requested_by TEXT NOT NULL,
    requested_at INTEGER NOT NULL,
    head         INTEGER NOT NULL,
    worked_at    INTEGER NOT NULL,
    is_waiting   INTEGER NOT NULL,
    finished_at  INTEGER,
    call_id      TEXT,
    seq          INTEGER NOT NULL,
    calls        INTEGER NOT NULL,
    deliveries   INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    webhooks     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX erasures_open ON erasures (worked_at) WHERE finished_at IS NULL;
CREATE INDEX erasures_open_of_target ON erasures (principal, kind, target) WHERE finished_at IS NULL;
CREATE INDEX erasures_finished ON erasures (finished_at) WHERE finished_at IS NOT NULL;

-- The webhooks that a client registered for its session.
CREATE INDEX webhooks_of_session ON webhooks (principal, client_session_id, id)
    WHERE client_session_id IS NOT NULL AND (origin <> 'call' OR call_id IS NULL);

-- Which key sealed a call's arguments, or its result; NULL if they are readable (RINGBACK_SEAL). Sealed arguments and `_meta` are one
-- text, a tilde and base64, in the place of the arguments. A node of an older version cannot read it: set RINGBACK_SEAL=all once
-- all nodes have this version.
ALTER TABLE inputs ADD COLUMN key_id TEXT;
ALTER TABLE results ADD COLUMN key_id TEXT;

CREATE INDEX inputs_sealed ON inputs (call_id, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX results_sealed ON results (call_id, key_id) WHERE key_id IS NOT NULL;
