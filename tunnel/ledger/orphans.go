package ledger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// LookAgain is how often to ask for orphans. Once is not enough: the file of a
// dead process is locked for a moment by every other that looks into it, which
// is then taken for its owner; and processes die at any time.
const LookAgain = 10 * time.Second

// strayAge is how old a half-made file must be to be nobody's.
const strayAge = time.Hour

// Orphan is what a dead process has left behind. As long as it is not done,
// and the ledger that found it is open, no other process gets to see it.
type Orphan struct {
	Entry
	done func() error
}

// Done says that the thing is gone, or never was. It is idempotent.
func (o Orphan) Done() error { return o.done() }

// estate is the file of a dead process, locked for as long as an entry of a
// kind that was asked for is in it.
type estate struct {
	*file
	kinds []string
}

// Orphans returns what dead processes have left behind of this kind. What an
// earlier call returned and nobody has done is returned again. Files that
// cannot be read are in the error, beside the orphans of those that can.
func (l *Ledger) Orphans(kind string) ([]Orphan, error) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("look for orphans: %w", ErrClosed)
	}
	problems := l.claimDead()
	var orphans []Orphan
	for name, e := range l.estates {
		if !slices.Contains(e.kinds, kind) {
			e.kinds = append(e.kinds, kind)
		}
		for _, entry := range e.entries {
			if entry.Kind == kind {
				orphans = append(orphans, Orphan{Entry: entry, done: func() error { return l.settle(name, entry) }})
			}
		}
		problems = append(problems, l.letGo(name))
	}
	if err := errors.Join(problems...); err != nil {
		return orphans, fmt.Errorf("look for orphans: %w", err)
	}
	return orphans, nil
}

// claimDead takes every file that no living process has.
func (l *Ledger) claimDead() (problems []error) {
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return []error{err}
	}
	for _, entry := range files {
		name := entry.Name()
		path := filepath.Join(l.dir, name)
		switch {
		case !entry.Type().IsRegular(), path == l.own.path, l.estates[name] != nil:
		case strings.HasSuffix(name, suffix+pending):
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > strayAge {
				problems = append(problems, os.Remove(path))
			}
		case strings.HasSuffix(name, suffix):
			f, err := claim(path)
			problems = append(problems, err)
			if f != nil {
				l.estates[name] = &estate{file: f}
			}
		}
	}
	return problems
}

// settle takes the entry out of the file of that name.
func (l *Ledger) settle(name string, entry Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.estates[name]
	switch {
	case l.closed:
		return fmt.Errorf("settle %s %s: %w", entry.Kind, entry.ID, ErrClosed)
	case e == nil:
		return nil
	}
	if err := errors.Join(e.remove(entry.Kind, entry.ID), l.letGo(name)); err != nil {
		return fmt.Errorf("settle %s %s: %w", entry.Kind, entry.ID, err)
	}
	return nil
}

// letGo leaves the file of that name to whoever can clean up what is left in
// it, once this process has nothing more to do there, and removes an empty one.
func (l *Ledger) letGo(name string) error {
	e := l.estates[name]
	if slices.ContainsFunc(e.entries, func(entry Entry) bool { return slices.Contains(e.kinds, entry.Kind) }) {
		return nil
	}
	delete(l.estates, name)
	if len(e.entries) == 0 {
		return e.save(nil)
	}
	return e.release()
}
