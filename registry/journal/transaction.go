package journal

import (
	"context"
	"fmt"

	"github.com/muxproxy/muxproxy/registry"
)

const (
	// batchBytes is how much goes into one transaction at most, but for the entry that goes beyond.
	batchBytes = 8 << 20
	// maxEntry is the most that one entry may have. SQLite takes blobs of up to a billion bytes.
	maxEntry = 900 << 20
)

// transaction is one on its way.
type transaction struct {
	begun   bool
	size    int
	drops   bool  // it drops traces
	err     error // why nothing of it is written
	refused error // why the last entry alone is not written
}

// wants says that another entry may be added.
func (t *transaction) wants() bool { return t.size < batchBytes && t.err == nil && t.refused == nil }

// add makes the changes of an entry; nil is none.
func (t *transaction) add(ctx context.Context, w *writer, rows *registry.Rows) {
	if rows == nil {
		return
	}
	size := sizeOf(rows)
	if size > maxEntry {
		t.refused = fmt.Errorf("%d bytes are more than the journal takes at once", size)
		return
	}
	if !t.begun {
		if t.err = run(ctx, w.begin); t.err != nil {
			return
		}
		t.begun = true
	}
	t.err = w.put(ctx, rows)
	t.size += size
	t.drops = t.drops || rows.TraceDropped
}

// end commits, or undoes what was done.
func (t *transaction) end(ctx context.Context, w *writer) {
	if t.begun && t.err == nil {
		t.err = run(ctx, w.commit)
	}
	if t.err != nil {
		w.undo(ctx)
		t.err = fmt.Errorf("%w: %w", registry.ErrNotWritten, t.err)
	}
}

func sizeOf(r *registry.Rows) int {
	size := len(r.Spec) + len(r.State)
	for _, p := range r.Parts {
		size += len(p.Middle)
	}
	if r.Call != nil {
		size += len(r.Call.About) + len(r.Call.Body)
	}
	if r.Created != nil {
		size += len(r.Created.Spec)
	}
	return size
}
