package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

const givenSecret = "a-secret.of~the_client-0"

func newRegistry(tb testing.TB, options registry.Options) *registry.Registry {
	tb.Helper()
	r, err := registry.New(options)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// running returns a registry for which time passes, until the test is over.
func running(t *testing.T, options registry.Options) *registry.Registry {
	t.Helper()
	r := newRegistry(t, options)
	go func() {
		if err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	return r
}

func register(tb testing.TB, r *registry.Registry, spec registry.Spec) (*registry.Session, string) {
	tb.Helper()
	registrations, err := r.Register(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return registrations[0].Session, registrations[0].Secret
}

func admit(tb testing.TB, s *registry.Session) *registry.Call {
	tb.Helper()
	call, err := s.Admit(tb.Context(), registry.CallInfo{Dialect: "chat"})
	if err != nil {
		tb.Fatal(err)
	}
	return call
}

func commit(tb testing.TB, call *registry.Call, response registry.Response) *registry.Turn {
	tb.Helper()
	turn, err := call.Commit(response)
	if err != nil {
		tb.Fatal(err)
	}
	call.Close()
	return turn
}

// take makes one turn with the given usage.
func traceOf(tb testing.TB, s *registry.Session) registry.Trace {
	tb.Helper()
	trace, err := s.Trace()
	if err != nil {
		tb.Fatal(err)
	}
	return trace
}

func take(tb testing.TB, s *registry.Session, input, output int64) *registry.Turn {
	tb.Helper()
	return commit(tb, admit(tb, s), registry.Response{Usage: &registry.Usage{InputTokens: input, OutputTokens: output}})
}

func wantStopped(tb testing.TB, err error, condition string) {
	tb.Helper()
	if stopped, ok := errors.AsType[*registry.StoppedError](err); !ok || stopped.Condition != condition {
		tb.Errorf("error is %v; want stopped by %s", err, condition)
	}
}

func wantEnded(tb testing.TB, err error, reason string) {
	tb.Helper()
	ended, ok := errors.AsType[*registry.EndedError](err)
	if !ok || ended.Reason != reason || !errors.Is(err, registry.ErrSessionEnded) {
		tb.Errorf("error is %v; want ended: %s", err, reason)
	}
}

func wantInvalid(tb testing.TB, err error, field string) {
	tb.Helper()
	if invalid, ok := errors.AsType[*registry.InvalidError](err); !ok || invalid.Field != field {
		tb.Errorf("error is %v; want one about %s", err, field)
	}
}

func wantState(tb testing.TB, s *registry.Session, state registry.State, condition string) {
	tb.Helper()
	if got := s.Summary(); got.State != state || got.StopCondition != condition {
		tb.Errorf("session is %s by %q; want %s by %q", got.State, got.StopCondition, state, condition)
	}
}

func wantIs(tb testing.TB, err, target error) {
	tb.Helper()
	if !errors.Is(err, target) {
		tb.Errorf("error is %v; want %v", err, target)
	}
}

func TestSecretMadeHereFindsItsSessionAndNoOther(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	a, secretA := register(t, r, registry.Spec{})
	b, secretB := register(t, r, registry.Spec{ID: "b"})
	if !strings.HasPrefix(secretA, "mxp_") || len(secretA) < 26 || secretA == secretB {
		t.Errorf("secrets are %q and %q", secretA, secretB)
	}
	for secret, want := range map[string]*registry.Session{secretA: a, secretB: b} {
		if got, err := r.Lookup(secret); err != nil || got != want {
			t.Errorf("Lookup = %v, %v", got, err)
		}
	}
	for _, secret := range []string{"", "b", secretA + "x", strings.ToLower(secretA)} {
		_, err := r.Lookup(secret)
		wantIs(t, err, registry.ErrUnknownSecret)
	}
	if a.ID() == "" || a.Spec().Secret != "" {
		t.Error("an id is missing or a secret is kept")
	}
}

func TestRepeatedRegistrationIsTheSameSession(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxSessions: 1})
	spec := registry.Spec{ID: "a", Secret: givenSecret, Digest: [32]byte{1}}
	first, _ := register(t, r, spec)
	again, err := r.Register(spec)
	if err != nil || again[0].Created || again[0].Session != first || again[0].Secret != givenSecret {
		t.Errorf("Register again = %+v, %v", again, err)
	}

	other := spec
	other.Digest = [32]byte{2}
	_, err = r.Register(other)
	wantIs(t, err, registry.ErrDuplicateID)
	_, err = r.Register(registry.Spec{ID: "a", Digest: [32]byte{1}})
	wantIs(t, err, registry.ErrDuplicateID)
	_, err = r.Register(registry.Spec{ID: "b", Secret: givenSecret})
	wantInvalid(t, err, "secret")

	if _, err := r.End(t.Context(), "a", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = r.Register(spec)
	wantIs(t, err, registry.ErrDuplicateID)
}

func TestBatchIsRegisteredWholeOrNotAtAll(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxSessions: 4})
	register(t, r, registry.Spec{ID: "taken"})
	for name, batch := range map[string][]registry.Spec{
		"taken id":     {{ID: "a"}, {ID: "taken"}},
		"id twice":     {{ID: "a"}, {ID: "a"}},
		"secret twice": {{ID: "a", Secret: givenSecret}, {ID: "b", Secret: givenSecret}},
		"lease":        {{ID: "a"}, {ID: "b", Lease: -1}},
	} {
		_, err := r.Register(batch...)
		if at, ok := errors.AsType[*registry.SpecError](err); !ok || at.Index != 1 {
			t.Errorf("%s: error is %v; want one about the second", name, err)
		}
	}
	_, err := r.Register(registry.Spec{ID: "a"}, registry.Spec{ID: "taken"})
	wantIs(t, err, registry.ErrDuplicateID)
	_, err = r.Register(make([]registry.Spec, 4)...)
	wantIs(t, err, registry.ErrTooManySessions)
	if got := len(r.Select(nil)); got != 1 {
		t.Fatalf("%d sessions; want 1", got)
	}
	registrations, err := r.Register(make([]registry.Spec, 3)...)
	if err != nil || len(registrations) != 3 {
		t.Fatalf("Register = %v, %v", registrations, err)
	}
	if _, err := r.End(t.Context(), "taken", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	register(t, r, registry.Spec{})
}

func TestSpecsAreChecked(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	for field, spec := range map[string]registry.Spec{
		"id":                         {ID: ".a"},
		"secret":                     {Secret: "too-short"},
		"sampling_mode":              {SamplingMode: "sometimes"},
		"sampling.top_k":             {Sampling: map[string]jsonRaw{"top_k": jsonRaw("{")}},
		"metadata":                   {Metadata: jsonRaw("x")},
		"lease":                      {Lease: -time.Second},
		"limits.max_turns":           {Limits: registry.Limits{MaxTurns: new(int64(-1))}},
		"limits.max_context_tokens":  {Limits: registry.Limits{MaxContextTokens: new(int64(-1))}},
		"limits.max_inflight":        {Limits: registry.Limits{MaxInflight: new(0)}},
		"limits.requests_per_second": {Limits: registry.Limits{RequestsPerSecond: new(0.0)}},
		"limits.max_duration":        {Limits: registry.Limits{MaxDuration: new(time.Duration(0))}},
		"stop_conditions[0].name":    {StopConditions: []registry.StopCondition{{ToolCall: "submit"}}},
		"stop_conditions[0]":         {StopConditions: []registry.StopCondition{{Name: "a"}}},
		"stop_conditions[1].name":    {StopConditions: []registry.StopCondition{{Name: "a", ToolCall: "b"}, {Name: "a", ToolCall: "c"}}},
	} {
		_, err := r.Register(spec)
		wantInvalid(t, err, field)
	}
	_, err := registry.New(registry.Options{MaxTraceBytes: -1})
	wantInvalid(t, err, "MaxTraceBytes")
}

func TestDiscardedSessionLeavesNothing(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxSessions: 1})
	s, secret := register(t, r, registry.Spec{ID: "a"})
	admit(t, s).Record(registry.Request{Body: []byte("{}")})
	r.Discard("a")
	r.Discard("a")
	_, err := r.Lookup(secret)
	wantIs(t, err, registry.ErrUnknownSecret)
	_, err = r.Get("a")
	wantIs(t, err, registry.ErrNotFound)
	_, err = r.End(t.Context(), "a", registry.EndOptions{})
	wantIs(t, err, registry.ErrNotFound)
	_, err = s.Admit(t.Context(), registry.CallInfo{})
	wantEnded(t, err, registry.ReasonDiscarded)
	if stats := r.Stats(); stats.TraceBytes != 0 {
		t.Errorf("%d trace bytes; want 0", stats.TraceBytes)
	}
	register(t, r, registry.Spec{ID: "a"})
}

func TestRotatedSecretIsUnknownAtOnce(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, old := register(t, r, registry.Spec{ID: "a"})
	secret, err := s.Rotate()
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Lookup(old)
	wantIs(t, err, registry.ErrUnknownSecret)
	if got, err := r.Lookup(secret); err != nil || got != s {
		t.Errorf("Lookup of the new secret = %v, %v", got, err)
	}
	if _, err := r.End(t.Context(), "a", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err = r.Lookup(secret)
	wantEnded(t, err, registry.ReasonDeleted)
	_, err = s.Rotate()
	wantEnded(t, err, registry.ReasonDeleted)
}

func TestDrainRefusesNewSessionsAndCalls(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	call := admit(t, s)
	r.Drain()
	_, err := r.Register(registry.Spec{})
	wantIs(t, err, registry.ErrDraining)
	_, err = s.Admit(t.Context(), registry.CallInfo{})
	wantIs(t, err, registry.ErrDraining)
	commit(t, call, registry.Response{})
}

func TestUpdateHoldsForCallsAdmittedAfterwards(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{ID: "a", Model: "one", Labels: map[string]string{"k": "v"}})
	before := admit(t, s)
	err := s.Update(func(spec *registry.Spec) error {
		spec.Model, spec.ID, spec.Labels["k"] = "two", "b", "w"
		spec.Limits.MaxTotalTokens = new(int64(10))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	after := admit(t, s)
	if before.Settings().Model != "one" || after.Settings().Model != "two" {
		t.Errorf("models are %q and %q", before.Settings().Model, after.Settings().Model)
	}
	if before.Settings().HasTokenLimit || !after.Settings().HasTokenLimit {
		t.Error("the token limit does not hold for calls admitted afterwards")
	}
	if spec := s.Spec(); spec.ID != "a" || spec.Labels["k"] != "w" || spec.Upstream != registry.DefaultUpstream {
		t.Errorf("spec is %+v", spec)
	}
	if got := after.Settings().Affinity; got != "a" {
		t.Errorf("affinity is %q; want the id", got)
	}
}

func TestRefusedUpdateChangesNothing(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{ID: "a", Model: "one"})
	refusal := errors.New("no")
	wantIs(t, s.Update(func(spec *registry.Spec) error { spec.Model = "two"; return refusal }), refusal)
	wantInvalid(t, s.Update(func(spec *registry.Spec) error {
		spec.Model, spec.Limits.MaxTurns = "two", new(int64(-1))
		return nil
	}), "limits.max_turns")
	if got := s.Spec().Model; got != "one" {
		t.Errorf("model is %q", got)
	}
	if _, err := r.End(context.Background(), "a", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	wantEnded(t, s.Update(func(*registry.Spec) error { return nil }), registry.ReasonDeleted)
}

// said is the text of a choice.
func said(text string) func() string { return func() string { return text } }

func TestRoomSaysWhatWouldRefuseARegistration(t *testing.T) {
	r := newRegistry(t, registry.Options{MaxSessions: 2})
	register(t, r, registry.Spec{ID: "a"})
	if err := r.Room(1); err != nil {
		t.Errorf("one more: got %v; want room", err)
	}
	if err := r.Room(2); !errors.Is(err, registry.ErrTooManySessions) {
		t.Errorf("two more: got %v; want ErrTooManySessions", err)
	}
	if _, err := r.End(t.Context(), "a", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Room(2); err != nil {
		t.Errorf("after the end: got %v; want room", err)
	}
	r.Drain()
	if err := r.Room(1); !errors.Is(err, registry.ErrDraining) {
		t.Errorf("draining: got %v; want ErrDraining", err)
	}
}
