-- name: append
INSERT INTO audit_entries (at, principal, key_id, surface, operation, target, owner, detail)
VALUES (:at, :principal, :key_id, :surface, :operation, :target, :owner, :detail);

-- name: page
SELECT {audit_entry in audit_entries} FROM audit_entries WHERE seq < :before_seq ORDER BY seq DESC LIMIT :limit;

-- Only the index of the owner has this order. With `owner = …` the primary key has it too, and PostgreSQL may read the entries
-- of all owners along that.
-- name: page_of_owner
SELECT {audit_entry in audit_entries} FROM audit_entries
WHERE owner >= :owner AND (owner, seq) < (:owner, :before_seq)
ORDER BY owner DESC, seq DESC LIMIT :limit;

-- The oldest `limit` entries of the owner, if it has more than `entries_max`.
-- name: remove_beyond
WITH oldest AS MATERIALIZED (
    SELECT seq FROM audit_entries
    WHERE owner <= :owner AND (owner, seq) > (:owner, 0)
        AND (SELECT sum(entries) FROM audit_counts WHERE owner = :owner) > :entries_max::bigint
    ORDER BY owner, seq LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
DELETE FROM audit_entries USING oldest WHERE audit_entries.seq = oldest.seq;

-- name: remove
WITH old AS MATERIALIZED (
    SELECT seq FROM audit_entries WHERE at < :older_than ORDER BY at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM audit_entries USING old WHERE audit_entries.seq = old.seq;
