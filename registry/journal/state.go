package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Stats is the state of a journal at one moment.
type Stats struct {
	Bytes  int64 // on disk
	Errors int64 // transactions that failed since the start
	Err    error // why the last one failed, nil if it did not
}

// Stats returns the state of the journal.
func (j *Journal) Stats() Stats {
	stats := j.state.get()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(filepath.Join(j.options.Dir, fileName+suffix))
		if err == nil {
			stats.Bytes += info.Size()
		} else if !errors.Is(err, fs.ErrNotExist) && stats.Err == nil {
			stats.Err = err
		}
	}
	return stats
}

// state is how writing goes.
type state struct {
	mu     sync.Mutex
	err    error
	errors int64
}

// set notes how a transaction went, and reports whether that is news.
func (s *state) set(err error) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errors++
	}
	changed = (err == nil) != (s.err == nil)
	s.err = err
	return changed
}

func (s *state) failing() error { return s.get().Err }

func (s *state) get() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Errors: s.errors, Err: s.err}
}
