package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

const (
	suffix = ".ledger"
	// pending is what a file is called until it is whole and locked.
	pending = ".new"
	// maxFileBytes bounds what is read of another process's file; ours are a
	// hundred bytes an entry.
	maxFileBytes = 16 << 20
)

// Entry is one thing on record, and a line of JSON in the file.
type Entry struct {
	Kind string          `json:"kind"`
	ID   string          `json:"id"`
	Data json.RawMessage `json:"data,omitempty"`
}

// file is a process's file and the lock on it. It is on disk only as long as
// it has entries.
type file struct {
	path    string
	entries []Entry
	lock    *os.File // what is at path, open and locked; nil when nothing is
}

func (f *file) put(e Entry) error {
	next := slices.Clone(f.entries)
	if at := f.index(e.Kind, e.ID); at >= 0 {
		next[at] = e
	} else {
		next = append(next, e)
	}
	return f.save(next)
}

func (f *file) remove(kind, id string) error {
	at := f.index(kind, id)
	if at < 0 {
		return nil
	}
	return f.save(slices.Delete(slices.Clone(f.entries), at, at+1))
}

func (f *file) index(kind, id string) int {
	return slices.IndexFunc(f.entries, func(e Entry) bool { return e.Kind == kind && e.ID == id })
}

// save puts the entries on disk, and on success into f. They are written beside
// the file and renamed over it once they are locked, so that at every moment
// the path has whole contents and a lock, and a process that had opened the
// older file finds out by its inode.
func (f *file) save(entries []Entry) error {
	if len(entries) == 0 {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f.entries = nil
		return f.release()
	}
	text, err := encode(entries)
	if err != nil {
		return err
	}
	next, err := os.OpenFile(f.path+pending, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = lock(next); err == nil {
		_, err = next.Write(text)
	}
	if err == nil {
		err = os.Rename(f.path+pending, f.path)
	}
	if err != nil {
		_ = os.Remove(f.path + pending)
		return errors.Join(err, next.Close())
	}
	_ = f.release()
	f.lock, f.entries = next, entries
	return nil
}

// release gives up the lock; the file and its entries stay.
func (f *file) release() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// claim locks the file at path and reads it. It answers nil when a living
// process has it, or when it has gone.
func claim(path string) (*file, error) {
	opened, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !mine(opened, path) {
		return nil, opened.Close()
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxFileBytes))
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return &file{path: path, entries: decode(text), lock: opened}, nil
}

// mine tells whether the lock could be had, and on what is at path now.
func mine(opened *os.File, path string) bool {
	if lock(opened) != nil {
		return false
	}
	have, err := opened.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(have, now)
}

func lock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func encode(entries []Entry) ([]byte, error) {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	for _, e := range entries {
		if err := lines.Encode(e); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// decode reads what it can: a line that is no entry is passed over, because
// nobody could clean up by it.
func decode(text []byte) []Entry {
	var entries []Entry
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.Kind != "" && e.ID != "" {
			entries = append(entries, e)
		}
	}
	return entries
}
