package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	// houseLatest is how long the house waits for a moment in which nobody does.
	houseLatest = 100 * time.Millisecond
	// sweepRows is how many rows of a table are deleted in one transaction: commits wait for it.
	sweepRows = 64
	// vacuumPages is how many pages are given back in one transaction, and how many are left.
	vacuumPages = 256
	// pageOverhead is about what a transaction writes besides its bytes, as pages are written whole.
	pageOverhead = 16 << 10
)

// house is what is to be done when nothing is to be written. It belongs to the goroutine of Run.
type house struct {
	logged  int64 // bytes written since the last checkpoint was begun, about
	copying bool  // a checkpoint is being made
	swept   bool  // nothing is dropped that is not deleted
	tight   bool  // no pages are to be given back
	kept    time.Time
}

func (h *house) written(t *transaction) {
	h.logged += int64(t.size) + pageOverhead
	if t.drops {
		h.swept = false
	}
}

// overdue says that the house must be kept even if there is something to write.
func (h *house) overdue() bool {
	waits := !h.swept || !h.tight || h.copying || h.logged > checkpointAfter
	return waits && time.Since(h.kept) > houseLatest
}

// keepHouse does one piece of what is to be done, and reports whether there is more.
func (j *Journal) keepHouse(ctx context.Context) (more bool) {
	j.house.kept = time.Now()
	if j.state.failing() != nil {
		err := j.probe(ctx)
		j.note(err)
		return err == nil
	}
	err := j.attendCheckpoints(ctx)
	switch {
	case err != nil:
	case !j.house.swept:
		err, more = j.sweep(ctx), true
	case !j.house.tight:
		err, more = j.vacuum(ctx), true
	}
	if err != nil {
		j.note(err)
		return false
	}
	return more
}

// probe finds out whether writing works again, by writing what is there.
func (j *Journal) probe(ctx context.Context) error {
	return j.within(ctx, fmt.Sprintf("PRAGMA user_version = %d", len(migrations())))
}

// within runs a statement in a transaction of its own.
func (j *Journal) within(ctx context.Context, query string, args ...any) error {
	if err := run(ctx, j.writer.begin); err != nil {
		return err
	}
	_, err := j.writer.conn.ExecContext(ctx, query, args...)
	if err == nil {
		err = run(ctx, j.writer.commit)
	}
	if err != nil {
		j.writer.undo(ctx)
	}
	return err
}

// sweep deletes some rows of a session whose trace was dropped.
func (j *Journal) sweep(ctx context.Context) error {
	var session uint32
	err := j.writer.conn.QueryRowContext(ctx, "SELECT session FROM dropped LIMIT 1").Scan(&session)
	if errors.Is(err, sql.ErrNoRows) {
		j.house.swept, j.house.tight = true, false
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if err := run(ctx, j.writer.begin); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if err = j.sweepSession(ctx, session); err == nil {
		err = run(ctx, j.writer.commit)
	}
	if err != nil {
		j.writer.undo(ctx)
		return fmt.Errorf("sweep: %w", err)
	}
	j.house.logged += pageOverhead
	return nil
}

func (j *Journal) sweepSession(ctx context.Context, session uint32) error {
	for _, table := range []string{"calls", "parts", "started", "deliveries"} {
		result, err := j.writer.conn.ExecContext(ctx,
			"DELETE FROM "+table+" WHERE key IN (SELECT key FROM "+table+" WHERE key BETWEEN ? AND ? LIMIT ?)", first(session), last(session), sweepRows)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n > 0 {
			return err
		}
	}
	_, err := j.writer.conn.ExecContext(ctx, "DELETE FROM dropped WHERE session = ?", session)
	return err
}

// vacuum gives some free pages back to the file system.
func (j *Journal) vacuum(ctx context.Context) (err error) {
	var free int
	if err := j.writer.conn.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	if free <= vacuumPages {
		j.house.tight = true
		j.house.logged += checkpointAfter // the file shrinks with the next checkpoint
		return nil
	}
	rows, err := j.writer.conn.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(vacuumPages, free-vacuumPages)))
	if err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() { // each step gives one page back
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}
