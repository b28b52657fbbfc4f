package upstream

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Set holds the upstreams by name. Its methods may be called concurrently.
type Set struct {
	options Options

	mu     sync.RWMutex
	byName map[string]*Upstream
}

// NewSet returns an empty set. It starts nothing; [Set.Run] does.
func NewSet(o Options) *Set {
	return &Set{options: o.withDefaults(), byName: make(map[string]*Upstream)}
}

// Put creates the upstream, or replaces its configuration. Replicas whose name
// and URL are the same keep their connections, health and weight version; removed
// ones finish the calls they have, and their connections are closed when idle.
// The error is an *[InvalidError].
func (s *Set) Put(name string, c Config) error {
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }) {
		return &InvalidError{"name", "must be 1 to 128 letters, digits, dots, dashes or underscores"}
	}
	settings, err := c.settings()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.byName[name]
	if u == nil {
		u = &Upstream{name: name, options: s.options, calls: make(map[*answer]struct{})}
	}
	u.configure(settings)
	s.byName[name] = u
	return nil
}

// Delete removes the upstream; calls in flight finish. It returns [ErrNotFound]
// when there is none of that name.
func (s *Set) Delete(name string) error {
	s.mu.Lock()
	u := s.byName[name]
	delete(s.byName, name)
	s.mu.Unlock()
	if u == nil {
		return fmt.Errorf("upstream %q: %w", name, ErrNotFound)
	}
	u.retire()
	return nil
}

// Get finds an upstream.
func (s *Set) Get(name string) (*Upstream, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	u, ok := s.byName[name]
	return u, ok
}

// List describes all upstreams in the order of their names.
func (s *Set) List() []Status {
	all := s.upstreams()
	list := make([]Status, 0, len(all))
	for _, u := range all {
		list = append(list, u.Status())
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Close closes all idle connections. Calls in flight go on, and their connections
// are closed when they end.
func (s *Set) Close() {
	for _, u := range s.upstreams() {
		for _, t := range u.transports() {
			t.closeIdle()
		}
	}
}

func (s *Set) upstreams() []*Upstream {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*Upstream, 0, len(s.byName))
	for _, u := range s.byName {
		all = append(all, u)
	}
	return all
}

func nameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}
