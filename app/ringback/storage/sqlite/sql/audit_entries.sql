-- name: append
INSERT INTO audit_entries (at, principal, key_id, surface, operation, target, owner, detail)
VALUES (:at, :principal, :key_id, :surface, :operation, :target, :owner, :detail);

-- name: page
SELECT {audit_entry in audit_entries} FROM audit_entries WHERE seq < :before_seq ORDER BY seq DESC LIMIT :limit;

-- name: page_of_owner
SELECT {audit_entry in audit_entries} FROM audit_entries
WHERE owner = :owner AND seq < :before_seq
ORDER BY seq DESC LIMIT :limit;

-- The oldest `limit` entries of the owner, if it has more than `entries_max`.
-- name: remove_beyond
DELETE FROM audit_entries WHERE seq IN (
    SELECT seq FROM audit_counts CROSS JOIN audit_entries ON audit_entries.owner = audit_counts.owner
    WHERE audit_counts.owner = :owner AND entries > :entries_max
    ORDER BY seq LIMIT :limit
);

-- name: remove
DELETE FROM audit_entries WHERE seq IN (
    SELECT seq FROM audit_entries WHERE at < :older_than ORDER BY at LIMIT :limit
);
