-- name: of_calls
SELECT {call_resume in call_resumes}
FROM json_each(:ids) AS wanted CROSS JOIN call_resumes ON call_resumes.call_id = wanted.value
ORDER BY call_resumes.call_id, call_resumes.resumed_at, call_resumes.surface;

-- name: add
INSERT INTO call_resumes (call_id, resumed_at, surface, resumes)
SELECT id, :resumed_at, :surface, :resumes FROM calls WHERE id = :call_id
ON CONFLICT (call_id, resumed_at, surface) DO UPDATE SET resumes = resumes + excluded.resumes;
