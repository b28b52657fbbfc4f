// Package ledger keeps, across the death of a process, what that process has
// made outside of itself and must not leave behind: a registration with a
// provider, a child process. Whoever makes such a thing records it, forgets
// it once it is gone, and asks now and then for the orphans, which are what
// dead processes have recorded and not forgotten.
//
// Each process has one file in a folder that all processes of the user share,
// and holds a lock on it as long as it lives. The kernel lets go of the lock
// when the process dies, however it dies, so a file whose lock is free belongs
// to nobody: neither a process id that has been given out again nor a clock is
// asked. A process with nothing on record has no file.
//
// Nothing secret belongs in it. It is not synced to the disk: what outlives
// the machine is the provider's to expire.
package ledger

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// ErrClosed says that a ledger was used after Close.
var ErrClosed = errors.New("ledger is closed")

// Ledger is one process's record. Nil is a ledger that records nothing and
// finds nothing. It is safe for concurrent use.
type Ledger struct {
	dir string

	mu      sync.Mutex
	own     *file
	estates map[string]*estate // by file name
	closed  bool
}

// Open prepares to record in this folder, which it makes when it is missing.
func Open(dir string) (*Ledger, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	name := fmt.Sprintf("%d-%s%s", os.Getpid(), rand.Text(), suffix)
	return &Ledger{
		dir:     dir,
		own:     &file{path: filepath.Join(dir, name)},
		estates: make(map[string]*estate),
	}, nil
}

// Record says that the thing of this kind and id exists. The kind names who
// can clean it up; data, JSON or nothing, is what that takes. Recording again
// replaces the data. When the error is not nil nothing was recorded.
func (l *Ledger) Record(kind, id string, data json.RawMessage) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("record %s %s: %w", kind, id, ErrClosed)
	}
	if err := l.own.put(Entry{Kind: kind, ID: id, Data: data}); err != nil {
		return fmt.Errorf("record %s %s: %w", kind, id, err)
	}
	return nil
}

// Forget says that the thing is gone. One that is not on record is no error.
func (l *Ledger) Forget(kind, id string) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("forget %s %s: %w", kind, id, ErrClosed)
	}
	if err := l.own.remove(kind, id); err != nil {
		return fmt.Errorf("forget %s %s: %w", kind, id, err)
	}
	return nil
}

// Close lets go of all files. What is still recorded, and orphans that are not
// done, are orphans for the next who asks. It is idempotent.
func (l *Ledger) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	err := l.own.release()
	for name, e := range l.estates {
		err = errors.Join(err, e.release())
		delete(l.estates, name)
	}
	return err
}
