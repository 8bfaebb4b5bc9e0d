-- How many group commits of serving processes this database holds. The lock file beside it has the same number; one that is
-- ahead of the database's means that commits were lost.
CREATE TABLE commit_count (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL
) STRICT;

INSERT INTO commit_count (id, number) VALUES (1, 0);

-- One row that readiness writes again and again, as large as a usual call.
CREATE TABLE write_probe (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    filler BLOB NOT NULL
) STRICT;

-- The ids of the keys that sealed what is stored here. A key that was lost for good, which an operator has accepted, has a date.
CREATE TABLE sealing_keys (
    key_id  TEXT PRIMARY KEY,
    lost_at INTEGER
) STRICT, WITHOUT ROWID;

-- A sealed value begins with a version, the length of its key's id, and that id (signing/sealing.py).
INSERT INTO sealing_keys (key_id)
SELECT DISTINCT CAST(substr(sealed, 3, unicode(CAST(substr(sealed, 2, 1) AS TEXT))) AS TEXT)
FROM (SELECT secrets AS sealed FROM webhooks UNION ALL SELECT body FROM bodies)
WHERE length(sealed) > 2;
