package registry_test

import (
	"errors"
	"iter"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/muxproxy/muxproxy/registry"
)

// slowJournal writes nothing, and what is urgent only when it is told to.
type slowJournal struct {
	mu   sync.Mutex
	held bool // what is urgent waits
	wait []registry.Entry
}

func (j *slowJournal) Submit(e registry.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held && e.Urgent {
		j.wait = append(j.wait, e)
		return nil
	}
	go func() { // it must not call back from here
		e.Rows()
		e.Done(nil)
	}()
	return nil
}

// hold makes what is urgent wait, or writes what has waited, with this outcome.
func (j *slowJournal) hold(held bool, err error) {
	j.mu.Lock()
	waiting := j.wait
	j.held, j.wait = held, nil
	j.mu.Unlock()
	for _, e := range waiting {
		e.Rows()
		e.Done(err)
	}
}

func (j *slowJournal) LastSession() (uint32, error) { return 0, nil }
func (j *slowJournal) Sessions() iter.Seq2[registry.SessionRow, error] {
	return func(func(registry.SessionRow, error) bool) {}
}

func (j *slowJournal) Trace(uint32) (registry.TraceRows, error) {
	return registry.TraceRows{}, registry.ErrNotFound
}

func (j *slowJournal) Turn(uint32, int) (registry.TraceRows, error) {
	return registry.TraceRows{}, registry.ErrNotFound
}

func TestTurnIsVisibleOnceItIsWrittenAndNobodyElseWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slowJournal{}
		r := newRegistry(t, registry.Options{Journal: j})
		s, _ := register(t, r, registry.Spec{ID: "a"})
		other, _ := register(t, r, registry.Spec{ID: "b"})
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(`{}`)})
		j.hold(true, nil)
		committed := make(chan error, 1)
		go func() {
			_, err := call.Commit(registry.Response{Status: 200})
			committed <- err
		}()
		synctest.Wait()
		if got := s.Summary(); got.Turns != 0 || len(traceOf(t, s).Turns) != 0 {
			t.Errorf("%d turns before any is written", got.Turns)
		}
		admit(t, other).Close()
		second := admit(t, s) // the session itself does not wait either
		second.Fail(registry.Failure{Kind: registry.FailureTimeout})
		second.Close()
		j.hold(false, nil)
		if err := <-committed; err != nil || s.Summary().Turns != 1 {
			t.Errorf("%v, %d turns; want one", err, s.Summary().Turns)
		}
		call.Close()
		synctest.Wait()
	})
}

func TestEndWaitsForATurnThatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slowJournal{}
		r := newRegistry(t, registry.Options{Journal: j})
		s, _ := register(t, r, registry.Spec{ID: "a"})
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(`{}`)})
		j.hold(true, nil)
		go func() {
			_, _ = call.Commit(registry.Response{Status: 200}) // what becomes of it shows in the summary
			call.Close()
		}()
		synctest.Wait()
		ended := make(chan registry.Summary, 1)
		go func() {
			summary, err := r.End(t.Context(), "a", registry.EndOptions{})
			if err != nil {
				t.Error(err)
			}
			ended <- summary
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("the session ended before its turn was written")
		default:
		}
		j.hold(false, nil)
		if got := <-ended; got.Turns != 1 || len(got.FailedCalls) != 0 {
			t.Errorf("%d turns and failed calls %v; want the turn", got.Turns, got.FailedCalls)
		}
		synctest.Wait()
	})
}

func TestTurnThatCannotBeWrittenIsAFailedCallAndItsPlaceIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slowJournal{}
		r := newRegistry(t, registry.Options{Journal: j})
		s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(1))}})
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(`{}`)})
		j.hold(true, nil)
		committed := make(chan error, 1)
		go func() {
			_, err := call.Commit(registry.Response{Status: 200, Body: []byte("answer")})
			call.Close()
			committed <- err
		}()
		synctest.Wait()
		j.hold(false, registry.ErrNotWritten)
		if err := <-committed; !errors.Is(err, registry.ErrNotWritten) {
			t.Errorf("got %v", err)
		}
		trace := traceOf(t, s)
		if len(trace.Turns) != 0 || len(trace.FailedCalls) != 1 || trace.FailedCalls[0].Error.Kind != registry.FailureCommitFailed {
			t.Fatalf("%d turns, failed calls %v", len(trace.Turns), trace.Summary.FailedCalls)
		}
		call = admit(t, s)
		commit(t, call, registry.Response{})
		synctest.Wait()
	})
}

func TestWhatCouldNotBeWrittenHasNotHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &slowJournal{}
		r := newRegistry(t, registry.Options{Journal: j})
		s, secret := register(t, r, registry.Spec{ID: "a", Model: "m"})
		j.hold(true, nil)
		outcomes := make(chan error, 3)
		go func() {
			outcomes <- s.Update(func(spec *registry.Spec) error { spec.Model = "n"; return nil })
			_, err := s.Rotate()
			outcomes <- err
			_, err = r.Register(registry.Spec{ID: "b"})
			outcomes <- err
		}()
		for range 3 {
			synctest.Wait()
			j.hold(true, registry.ErrNotWritten)
			if err := <-outcomes; !errors.Is(err, registry.ErrNotWritten) {
				t.Errorf("got %v", err)
			}
		}
		if got := s.Settings().Model; got != "m" {
			t.Errorf("the model is %s", got)
		}
		if _, err := r.Lookup(secret); err != nil {
			t.Errorf("the secret is %v", err)
		}
		_, err := r.Get("b")
		wantIs(t, err, registry.ErrNotFound)
		synctest.Wait()
		j.hold(false, nil)
		synctest.Wait()
	})
}
