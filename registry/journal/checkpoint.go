package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// checkpointAfter is how much is written before it is copied from the log into the database.
	checkpointAfter = 8 << 20
	// longestLog is how long the log may be before the writer waits until all of it is copied, so that it begins anew.
	longestLog = 64 << 20
)

// checkpointer copies the log into the database while the writer goes on: it has a connection of its own. What is written meanwhile stays
// in the log for the next time, and the log begins anew only if that was nothing.
type checkpointer struct {
	db     *sql.DB
	wanted chan struct{}
	done   chan error
}

func newCheckpointer(db *sql.DB) *checkpointer {
	return &checkpointer{db: db, wanted: make(chan struct{}, 1), done: make(chan error, 1)}
}

// run makes checkpoints, one for each that is wanted, until wanted is closed, and wakes the writer after each.
func (c *checkpointer) run(ctx context.Context, wake func()) {
	for range c.wanted {
		c.done <- checkpoint(ctx, c.db)
		wake()
	}
}

// checkpoint copies what is in the log. It waits for nobody.
func checkpoint(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) error {
	var busy, log, copied int
	if err := db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &log, &copied); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

// attendCheckpoints begins a checkpoint when one is due, and sees to a log that has become too long.
func (j *Journal) attendCheckpoints(ctx context.Context) error {
	h := &j.house
	select {
	case err := <-j.checkpoints.done:
		h.copying = false
		if size, statErr := j.logSize(); err == nil && statErr == nil && size > longestLog {
			err = checkpoint(ctx, j.writer.conn)
		}
		if err != nil {
			return err
		}
	default:
	}
	if h.logged > checkpointAfter && !h.copying {
		h.logged, h.copying = 0, true
		j.checkpoints.wanted <- struct{}{}
	}
	return nil
}

func (j *Journal) logSize() (int64, error) {
	info, err := os.Stat(filepath.Join(j.options.Dir, fileName+"-wal"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
