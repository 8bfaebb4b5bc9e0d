-- name: of_calls
SELECT {call_resume in call_resumes} FROM call_resumes WHERE call_id = ANY(:ids::text[])
ORDER BY call_id, resumed_at, surface;

-- The lock keeps the call until the commit. A call that another unit deletes now is left out.
-- name: add
INSERT INTO call_resumes (call_id, resumed_at, surface, resumes)
SELECT id, :resumed_at::bigint, :surface::text, :resumes::bigint FROM calls WHERE id = :call_id
FOR KEY SHARE SKIP LOCKED
ON CONFLICT (call_id, resumed_at, surface) DO UPDATE SET resumes = call_resumes.resumes + excluded.resumes;
