-- Times are milliseconds since the Unix epoch, durations seconds, unless a name says otherwise.

-- Plans repeat from run to run: each is kept once.
CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    plan TEXT NOT NULL UNIQUE
);

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL UNIQUE,
    sweep TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    result TEXT,
    version TEXT NOT NULL,
    revision TEXT NOT NULL,
    plan_id INTEGER NOT NULL REFERENCES plans (id)
);
CREATE INDEX runs_by_sweep ON runs (sweep, started_at);
CREATE INDEX runs_by_start ON runs (started_at);

CREATE TABLE levels (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    target TEXT NOT NULL,
    model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    concurrency INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    served_model TEXT,
    fingerprint TEXT,
    requests INTEGER NOT NULL,
    ok INTEGER NOT NULL,
    failures TEXT,
    ttft_count INTEGER, ttft_mean REAL, ttft_p50 REAL, ttft_p95 REAL, ttft_p99 REAL,
    answer_count INTEGER, answer_mean REAL, answer_p50 REAL, answer_p95 REAL, answer_p99 REAL,
    tpot_count INTEGER, tpot_mean REAL, tpot_p50 REAL, tpot_p95 REAL, tpot_p99 REAL,
    request_tps_count INTEGER, request_tps_mean REAL, request_tps_p50 REAL, request_tps_p95 REAL, request_tps_p99 REAL,
    duration_count INTEGER, duration_mean REAL, duration_p50 REAL, duration_p95 REAL, duration_p99 REAL,
    throughput_tokens_per_second REAL,
    throughput_requests_per_second REAL,
    prompt_tokens_measured REAL,
    cached_ratio REAL,
    client_saturated INTEGER,
    incomplete INTEGER NOT NULL,
    ttft_independent REAL,
    tpot_independent REAL,
    -- HdrHistogram V2, nanoseconds.
    ttft_sketch BLOB,
    tpot_sketch BLOB,
    duration_sketch BLOB,
    UNIQUE (run_id, target, model, prompt_tokens, concurrency)
);
CREATE INDEX levels_by_cell ON levels (target, model, prompt_tokens, concurrency, ended_at);

CREATE TABLE ladders (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    target TEXT NOT NULL,
    model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    knee_concurrency INTEGER,
    safe_concurrency INTEGER,
    whole INTEGER NOT NULL,
    report TEXT NOT NULL,
    UNIQUE (run_id, target, model, prompt_tokens)
);
CREATE INDEX ladders_by_grid ON ladders (target, model, prompt_tokens, ended_at);

CREATE TABLE probes (
    id INTEGER PRIMARY KEY,
    run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    target TEXT NOT NULL,
    model TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    concurrency INTEGER NOT NULL,
    role TEXT NOT NULL,
    at INTEGER NOT NULL,
    class TEXT,
    record TEXT NOT NULL
);
CREATE INDEX probes_by_run ON probes (run_id);
-- Good ones are given up by age; failures go with their run.
CREATE INDEX probes_good_by_age ON probes (at) WHERE class IS NULL;
