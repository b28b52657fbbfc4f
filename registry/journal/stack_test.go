package journal_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
	"github.com/muxproxy/muxproxy/registry/journal"
)

// stack is a registry with a journal.
type stack struct {
	*registry.Registry
	journal *journal.Journal
	dir     string
	stop    func() // in order
}

func start(tb testing.TB, dir string) *stack {
	tb.Helper()
	return startWith(tb, journal.Options{Dir: dir}, registry.Options{})
}

func startWith(tb testing.TB, options journal.Options, with registry.Options) *stack {
	tb.Helper()
	j, err := journal.Open(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	with.Journal = j
	r, err := registry.New(with)
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.Restore(); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- j.Run(ctx) }()
	stopped := false
	s := &stack{Registry: r, journal: j, dir: options.Dir}
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		if err := j.Close(); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(s.stop)
	return s
}

// flush returns when all that was submitted before is written.
func (s *stack) flush(tb testing.TB) {
	tb.Helper()
	done := make(chan error, 1)
	err := s.journal.Submit(registry.Entry{
		Urgent: true, Rows: func() *registry.Rows { return &registry.Rows{} }, Done: func(err error) { done <- err },
	})
	if err == nil {
		err = <-done
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// die returns a copy of the state directory as it is, which is what a killed process leaves.
func (s *stack) die(tb testing.TB) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	for _, name := range []string{"journal.db", "journal.db-wal"} {
		from, err := os.Open(filepath.Join(s.dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		defer from.Close()
		to, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		defer to.Close()
		if _, err := io.Copy(to, from); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func (s *stack) register(tb testing.TB, spec registry.Spec) (*registry.Session, string) {
	tb.Helper()
	registrations, err := s.Register(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return registrations[0].Session, registrations[0].Secret
}

func (s *stack) end(tb testing.TB, id string) registry.Summary {
	tb.Helper()
	summary, err := s.End(tb.Context(), id, registry.EndOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return summary
}

func admit(tb testing.TB, s *registry.Session) *registry.Call {
	tb.Helper()
	call, err := s.Admit(tb.Context(), registry.CallInfo{
		Dialect: "chat", Route: "/v1/chat/completions", RequestID: "req-1", Attempt: 1, Digest: [32]byte{1},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return call
}

// conversation is what an agent sends again and again.
type conversation struct {
	messages []string
	follows  *int // the turn that the next request continues
}

func (c *conversation) say(role, text string) {
	c.messages = append(c.messages, fmt.Sprintf(`{"role":%q,"content":%q}`, role, text))
}

func (c *conversation) request() registry.Request {
	const before = `{"model":"m","messages":`
	list := "[" + strings.Join(c.messages, ",") + "]"
	return registry.Request{
		Body: []byte(before + list + "}"), Model: "m", Added: 1, Follows: c.follows,
		Shared: []registry.Part{{Key: "messages", Start: len(before), End: len(before) + len(list)}},
	}
}

// turn takes a turn, which answers with the given text.
func (c *conversation) turn(tb testing.TB, s *registry.Session, answer string) *registry.Turn {
	tb.Helper()
	call := admit(tb, s)
	defer call.Close()
	call.Record(c.request())
	turn, err := call.Commit(registry.Response{
		Status: 200, Body: []byte(answer), Stream: true, Usage: &registry.Usage{InputTokens: int64(len(c.messages)), OutputTokens: 1},
		Choices:           []registry.Choice{{FinishReason: "stop", ToolCalls: []string{"t"}, Continuation: uint64(len(c.messages))}},
		UpstreamRequestID: "up-1", Upstream: "u", Replica: "r", IDs: []string{"resp-1"},
		WeightVersion: registry.VersionSpan{Start: registry.IntVersion(1), End: registry.StringVersion("two")},
		StartedAt:     time.Now().Add(-time.Second), TimeToFirstEvent: time.Millisecond, Duration: time.Second,
	})
	if err != nil {
		tb.Fatal(err)
	}
	turn.SetDelivered(true)
	c.follows = new(turn.Index)
	c.say("assistant", answer)
	return turn
}

func traceOf(tb testing.TB, s *registry.Session) registry.Trace {
	tb.Helper()
	trace, err := s.Trace()
	if err != nil {
		tb.Fatal(err)
	}
	return trace
}

func (s *stack) session(tb testing.TB, id string) *registry.Session {
	tb.Helper()
	session, err := s.Get(id)
	if err != nil {
		tb.Fatal(err)
	}
	return session
}

// sqlite changes the database behind the journal's back.
func sqlite(tb testing.TB, dir, query string) {
	tb.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "journal.db"))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := db.ExecContext(tb.Context(), query); err != nil {
		tb.Error(err)
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
}

func wantMode(tb testing.TB, path string, want os.FileMode) {
	tb.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != want {
		tb.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, want)
	}
}

// wantSoon waits for what another goroutine brings about.
func wantSoon(tb testing.TB, happened func() bool, what string) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not in twenty seconds: %s", what)
		}
	}
}
