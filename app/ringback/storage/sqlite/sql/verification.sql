-- name: save_challenge
INSERT INTO challenges {new challenge}
ON CONFLICT (webhook_id) DO UPDATE SET
    url = excluded.url, origin = excluded.origin, attempts = excluded.attempts, due_at = excluded.due_at,
    token = excluded.token;

-- name: get_challenge
SELECT {challenge in challenges} FROM challenges WHERE webhook_id = :webhook_id;

-- The only writer lists challenges alone.
-- name: lock_due
SELECT 1 WHERE false;

-- name: due_challenges
SELECT {challenge in challenges} FROM challenges WHERE due_at <= :now ORDER BY due_at LIMIT :limit;

-- name: next_due
SELECT min(due_at) AS due_at FROM challenges;

-- name: remove_challenge
DELETE FROM challenges WHERE webhook_id = :webhook_id;

-- name: recent_of_origin
SELECT count(*) AS sent, min(sent_at) AS first_at, (
    SELECT count(DISTINCT principal || ' ' || url) FROM challenges WHERE origin = :key AND attempts = 0
) AS waiting
FROM challenges_sent WHERE origin = :key AND sent_at > :since AND answered = 0;

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
FROM challenges_sent WHERE principal = :principal AND sent_at > :since AND origin = :origin AND answered = 0;

-- name: record_sent
INSERT INTO challenges_sent (origin, principal, sent_at) VALUES (:origin, :principal, :now);

-- Of challenges to one origin for one principal it does not matter which one has been answered.
-- name: record_answered
UPDATE challenges_sent SET answered = 1 WHERE id = (
    SELECT id FROM challenges_sent
    WHERE origin = :origin AND principal = :principal AND answered = 0 ORDER BY sent_at DESC LIMIT 1
);

-- name: remove_sent
DELETE FROM challenges_sent WHERE id IN (
    SELECT id FROM challenges_sent WHERE sent_at <= :older_than ORDER BY sent_at LIMIT :limit
);

-- name: proven_at
SELECT proven_at FROM proofs WHERE principal = :principal AND url = :url;

-- name: save_proof
INSERT INTO proofs (principal, url, proven_at) VALUES (:principal, :url, :now)
ON CONFLICT (principal, url) DO UPDATE SET proven_at = excluded.proven_at;

-- name: remove_proofs
DELETE FROM proofs WHERE (principal, url) IN (
    SELECT principal, url FROM proofs WHERE proven_at < :older_than ORDER BY proven_at LIMIT :limit
);
