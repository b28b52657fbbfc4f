package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/registry/journal"
)

// export writes the traces of a state directory, one a line, as POST
// /traces/query does. The daemon may be running: it is neither asked nor held
// up, and nothing is written.
func export(ctx context.Context, p process, flags *flag.FlagSet, args []string) error {
	var which selection
	dir := flags.String("state-dir", "", "the `folder` of the journal; by default "+prefix+"STATE_DIR")
	flags.Func("session", "the `id` of a session, may be repeated; by default all sessions", which.addID)
	flags.Func("label", "a `key:value` that sessions must have, may be repeated", which.addLabel)
	if err := parse(flags, args); err != nil {
		return err
	}
	*dir = cmp.Or(*dir, env.ToMap(p.environ)[prefix+"STATE_DIR"])
	if *dir == "" {
		return &usageError{flags.Name(), "no state directory: set --state-dir or " + prefix + "STATE_DIR"}
	}
	r, err := journal.OpenReader(ctx, *dir)
	if err != nil {
		return err
	}
	return errors.Join(exportFrom(ctx, r, &which, p.stdout), r.Close())
}

// exportFrom reads one session after the other, each as of one moment.
func exportFrom(ctx context.Context, r *journal.Reader, which *selection, out io.Writer) error {
	for row, err := range r.Sessions(ctx) {
		if err != nil {
			return err
		}
		if err := exportSession(ctx, r, row, which, out); err != nil {
			return fmt.Errorf("export %s: %w", row.ID, err)
		}
	}
	if missing := which.missing(); len(missing) > 0 {
		return fmt.Errorf("no trace of %s is kept", strings.Join(missing, ", "))
	}
	return nil
}

func exportSession(ctx context.Context, r *journal.Reader, row registry.SessionRow, which *selection, out io.Writer) error {
	if !row.Traced || !which.wantsID(row.ID) {
		return nil
	}
	if len(which.labels) > 0 {
		s, err := registry.Kept(row, nil)
		if err != nil {
			return err
		}
		if !which.wantsLabels(s.Spec().Labels) {
			return nil
		}
	}
	rows, err := r.Trace(ctx, row.Number)
	if errors.Is(err, registry.ErrNotFound) { // it was removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	s, err := registry.Kept(row, &rows)
	if err != nil {
		return err
	}
	which.found = append(which.found, row.ID)
	return admin.WriteTrace(out, s)
}

// selection says which sessions are wanted. The zero value wants all.
type selection struct {
	ids    []string
	labels map[string]string
	found  []string
}

func (s *selection) addID(id string) error {
	s.ids = append(s.ids, id)
	return nil
}

func (s *selection) addLabel(label string) error {
	key, value, ok := strings.Cut(label, ":")
	if !ok || key == "" {
		return errors.New("expected key:value")
	}
	if s.labels == nil {
		s.labels = make(map[string]string)
	}
	s.labels[key] = value
	return nil
}

func (s *selection) wantsID(id string) bool { return len(s.ids) == 0 || slices.Contains(s.ids, id) }

func (s *selection) wantsLabels(labels map[string]string) bool {
	for key, value := range s.labels {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// missing are the ids that were asked for and not found.
func (s *selection) missing() []string {
	return slices.DeleteFunc(slices.Clone(s.ids), func(id string) bool { return slices.Contains(s.found, id) })
}
