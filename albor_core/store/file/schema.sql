CREATE TABLE experiments (
  -- The schema of both stores: RUN_DIR/.albor/experiments.db (every point of one run) and
  -- ALBOR_HOME/experiments.db (every run, bounded curves). PRAGMA user_version counts its upgrades.
  -- This file is what `sqlite3 experiments.db .schema` prints, so comments stand inside statements.
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);

CREATE TABLE runs (
  -- id is the small integer that the other tables call run_id; run is the id people use. Metric
  -- values: NaN is NULL, Inf is 9e999. Times are UTC seconds. No column holds the time of indexing:
  -- a rebuild from the journal gives the same rows.
  id            INTEGER PRIMARY KEY,
  run           TEXT NOT NULL UNIQUE,
  experiment_id INTEGER NOT NULL REFERENCES experiments(id),
  name          TEXT NOT NULL,
  kind          TEXT NOT NULL,
  created       REAL,
  path          TEXT NOT NULL,
  host          TEXT,
  seed          INTEGER,
  git_commit    TEXT,
  git_dirty     INTEGER,
  argv          TEXT NOT NULL DEFAULT '[]',   -- JSON list
  facts         TEXT NOT NULL DEFAULT '{}',   -- JSON: the rest of run.json
  max_steps     INTEGER,
  ended_status  TEXT,                         -- completed, stopped, failed; NULL: has not ended
  ended_reason  TEXT,
  ended_wall    REAL,
  attempts      INTEGER NOT NULL DEFAULT 0,
  last_step     INTEGER,
  tokens        REAL,
  loss          REAL,
  val_loss      REAL,
  val_ppl       REAL,
  best_val_loss REAL,
  tokens_per_s  REAL,
  mfu           REAL,
  first_wall    REAL,
  last_wall     REAL,
  alerts_open   INTEGER NOT NULL DEFAULT 0,
  pinned        INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE attempts (
  run_id     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  started    REAL,
  ended      REAL,
  pid        INTEGER,
  code       INTEGER,
  signal     TEXT,
  exit_class TEXT,
  action     TEXT,
  reason     TEXT,
  delay_s    REAL,
  report     TEXT,
  step       INTEGER,
  diagnostic INTEGER NOT NULL DEFAULT 0,
  adopted    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, attempt)
) WITHOUT ROWID;

CREATE TABLE params (
  run_id INTEGER NOT NULL,
  key    TEXT NOT NULL,
  value  TEXT NOT NULL,                       -- JSON
  PRIMARY KEY (run_id, key)
) WITHOUT ROWID;

CREATE TABLE keys (
  -- One row per series with its numbers. Key ids count from 0 within a run; '_wall' is the wall time of each step.
  run_id     INTEGER NOT NULL,
  key_id     INTEGER NOT NULL,
  name       TEXT NOT NULL,
  base       INTEGER NOT NULL,                -- finest zoom level kept for this series
  count      INTEGER NOT NULL DEFAULT 0,
  nonfinite  INTEGER NOT NULL DEFAULT 0,
  first_step INTEGER,
  last_step  INTEGER,
  last       REAL,                            -- NULL with count > 0: NaN
  best       REAL,                            -- finite, by the metric's name; NULL: it says no direction
  best_step  INTEGER,
  minimum    REAL,
  maximum    REAL,
  axis       TEXT NOT NULL DEFAULT 'step',    -- what "step" counts: step; seconds, of system.jsonl: since the run was made
  PRIMARY KEY (run_id, key_id)
) WITHOUT ROWID;

CREATE TABLE metrics (
  run_id INTEGER NOT NULL,
  key_id INTEGER NOT NULL,
  step   INTEGER NOT NULL,
  value  REAL,
  PRIMARY KEY (run_id, key_id, step)
) WITHOUT ROWID;

CREATE TABLE metrics_discarded (
  -- What a rewind took back; "at" is the byte of the journal where that rewind line starts.
  run_id INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  key_id INTEGER NOT NULL,
  step   INTEGER NOT NULL,
  value  REAL,
  PRIMARY KEY (run_id, at, key_id, step)
) WITHOUT ROWID;

CREATE TABLE metric_levels (
  -- Zoom. Level n cuts the step axis into buckets of 8^n steps; a row packs 64 neighbouring buckets, the closed,
  -- non-empty ones (format: levels.py). Level 0 is the preview of a series in the global store.
  run_id INTEGER NOT NULL,
  key_id INTEGER NOT NULL,
  level  INTEGER NOT NULL,
  chunk  INTEGER NOT NULL,
  data   BLOB NOT NULL,
  PRIMARY KEY (run_id, key_id, level, chunk)
) WITHOUT ROWID;

CREATE TABLE events (
  run_id   INTEGER NOT NULL,
  source   TEXT NOT NULL,                     -- journal, attempts, annotations, system
  at       INTEGER NOT NULL,                  -- byte of the source file where the line starts
  wall     REAL,
  attempt  INTEGER,
  step     INTEGER,
  name     TEXT NOT NULL,
  severity TEXT NOT NULL,
  subject  TEXT,                              -- the alert's id in andon.alert and andon.ack
  data     TEXT NOT NULL,                     -- JSON
  PRIMARY KEY (run_id, source, at)
) WITHOUT ROWID;
CREATE INDEX events_by_subject ON events (subject) WHERE subject IS NOT NULL;

CREATE TABLE artifacts (
  run_id INTEGER NOT NULL,
  path   TEXT NOT NULL,
  name   TEXT NOT NULL,
  kind   TEXT NOT NULL,
  bytes  INTEGER,
  hash   TEXT,
  step   INTEGER,
  wall   REAL,
  PRIMARY KEY (run_id, path)
) WITHOUT ROWID;

CREATE TABLE media (
  -- Pictures, histograms, tables, audio, texts, figures and versions of artefacts. The file of one
  -- is RUN_DIR/media/HH/HASH.FORMAT, its format in meta; a small one stands in meta itself, "data".
  -- The global store has the artefacts alone.
  run_id  INTEGER NOT NULL,
  at      INTEGER NOT NULL,                   -- byte of the journal where its line starts
  key     TEXT NOT NULL,
  step    INTEGER,
  kind    TEXT NOT NULL,                      -- image, histogram, table, audio, text, figure, artifact
  hash    TEXT NOT NULL,                      -- BLAKE3 in hexadecimal digits
  bytes   INTEGER,
  name    TEXT NOT NULL,                      -- of an artefact: what NAME:vN calls it
  version INTEGER,
  caption TEXT NOT NULL,
  meta    TEXT NOT NULL,                      -- JSON
  wall    REAL,
  PRIMARY KEY (run_id, at)
) WITHOUT ROWID;

CREATE TABLE tags (
  run_id INTEGER NOT NULL,
  tag    TEXT NOT NULL,
  PRIMARY KEY (run_id, tag)
) WITHOUT ROWID;

CREATE TABLE notes (
  run_id INTEGER NOT NULL,
  at     INTEGER NOT NULL,                    -- byte of annotations.jsonl
  wall   REAL,
  by     TEXT NOT NULL,
  text   TEXT NOT NULL,
  PRIMARY KEY (run_id, at)
) WITHOUT ROWID;

CREATE TABLE goals (
  -- Which way a metric is better, as a run declared it; it holds for all runs of the experiment.
  run_id INTEGER NOT NULL,
  metric TEXT NOT NULL,
  goal   TEXT NOT NULL,                       -- min, max
  PRIMARY KEY (run_id, metric)
) WITHOUT ROWID;

CREATE TABLE span_ids (
  -- Where a run appears in somebody's distributed traces.
  run_id   INTEGER NOT NULL,
  name     TEXT NOT NULL,
  trace_id TEXT NOT NULL,
  span_id  TEXT NOT NULL,
  PRIMARY KEY (run_id, name)
) WITHOUT ROWID;

CREATE TABLE journal (
  -- How far each source file is indexed, in the same transaction as its rows: exactly once.
  run_id    INTEGER NOT NULL,
  file      TEXT NOT NULL,                    -- journal, attempts, annotations, system
  offset    INTEGER NOT NULL,
  tail      INTEGER NOT NULL,                 -- where the last indexed line starts
  tail_crc  INTEGER NOT NULL,                 -- CRC-32 of the bytes from tail to offset
  head_crc  INTEGER NOT NULL,                 -- CRC-32 of the first line: which file this was
  lines     INTEGER NOT NULL DEFAULT 0,
  damaged   INTEGER NOT NULL DEFAULT 0,
  ignored   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, file)
) WITHOUT ROWID;

CREATE TABLE param_names (
  -- Every key of params once, kept by the trigger: what `lr` in a filter may mean.
  name TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TRIGGER param_names_grow AFTER INSERT ON params BEGIN
  INSERT OR IGNORE INTO param_names (name) VALUES (new.key);
END;

CREATE VIRTUAL TABLE run_search USING fts5(
  -- What the words of a filter are looked up in: one row per run of the global store, its rowid the
  -- run's id, written by search.py. The five tables after it are SQLite's own.
  name, tags, notes, params,
  tokenize = 'unicode61 remove_diacritics 2'
)
/* run_search(name,tags,notes,params) */;
CREATE TABLE IF NOT EXISTS 'run_search_data'(id INTEGER PRIMARY KEY, block BLOB);
CREATE TABLE IF NOT EXISTS 'run_search_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS 'run_search_content'(id INTEGER PRIMARY KEY, c0, c1, c2, c3);
CREATE TABLE IF NOT EXISTS 'run_search_docsize'(id INTEGER PRIMARY KEY, sz BLOB);
CREATE TABLE IF NOT EXISTS 'run_search_config'(k PRIMARY KEY, v) WITHOUT ROWID;
