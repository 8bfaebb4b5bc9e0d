-- name: save_challenge
INSERT INTO challenges {new challenge}
ON CONFLICT (webhook_id) DO UPDATE SET
    url = excluded.url, origin = excluded.origin, attempts = excluded.attempts, due_at = excluded.due_at,
    token = excluded.token;

-- name: get_challenge
SELECT {challenge in challenges} FROM challenges WHERE webhook_id = :webhook_id
{lock challenges};

-- Units that list due challenges come one after the other. The number is any that no other lock has.
-- name: lock_due
SELECT pg_advisory_xact_lock(2026112215);

-- name: due_challenges
SELECT {challenge in challenges} FROM challenges WHERE due_at <= :now ORDER BY due_at LIMIT :limit
{lock challenges skip locked};

-- name: next_due
SELECT min(due_at) AS due_at FROM challenges;

-- name: remove_challenge
DELETE FROM challenges WHERE webhook_id = :webhook_id;

-- name: recent_of_origin
SELECT count(*) AS sent, min(sent_at) AS first_at, (
    SELECT count(DISTINCT principal || ' ' || url) FROM challenges WHERE origin = :key AND attempts = 0
) AS waiting
FROM challenges_sent WHERE origin = :key AND sent_at > :since AND NOT answered;

-- name: recent_of_principal
SELECT count(*) AS sent, min(sent_at) AS first_at, (
    SELECT count(DISTINCT principal || ' ' || url) FROM challenges WHERE principal = :key AND attempts = 0
) AS waiting
FROM challenges_sent WHERE principal = :key AND sent_at > :since;

-- Reads the recent rows of the principal, of which its own limit allows few.
-- name: recent_of_pair
SELECT count(*) AS sent, min(sent_at) AS first_at, (
    SELECT count(DISTINCT url) FROM challenges WHERE principal = :principal AND attempts = 0 AND origin = :origin
) AS waiting
FROM challenges_sent WHERE principal = :principal AND sent_at > :since AND origin = :origin AND NOT answered;

-- name: record_sent
INSERT INTO challenges_sent (origin, principal, sent_at) VALUES (:origin, :principal, :now);

-- Of challenges to one origin for one principal it does not matter which one has been answered.
-- name: record_answered
UPDATE challenges_sent SET answered = true WHERE id = (
    SELECT id FROM challenges_sent
    WHERE origin = :origin AND principal = :principal AND NOT answered ORDER BY sent_at DESC LIMIT 1
);

-- name: remove_sent
WITH old AS MATERIALIZED (
    SELECT id FROM challenges_sent WHERE sent_at <= :older_than ORDER BY sent_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM challenges_sent USING old WHERE challenges_sent.id = old.id;

-- name: proven_at
SELECT proven_at FROM proofs
WHERE principal = :principal AND hashtextextended(url, 0) = hashtextextended(:url::text COLLATE "C", 0) AND url = :url;

-- name: save_proof
INSERT INTO proofs (principal, url, proven_at) VALUES (:principal, :url, :now)
ON CONFLICT (principal, hashtextextended(url, 0)) DO UPDATE SET url = excluded.url, proven_at = excluded.proven_at;

-- name: remove_proofs
WITH old AS MATERIALIZED (
    SELECT principal, url FROM proofs WHERE proven_at < :older_than ORDER BY proven_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM proofs USING old
WHERE proofs.principal = old.principal AND hashtextextended(proofs.url, 0) = hashtextextended(old.url, 0) AND proofs.url = old.url;
