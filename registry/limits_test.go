package registry_test

import (
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

func TestTurnLimitIsExactUnderParallelCalls(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(3))}})
	take(t, s, 1, 1)
	take(t, s, 1, 1)
	const parallel = 64
	var admitted atomic.Int64
	var all sync.WaitGroup
	release := make(chan struct{})
	var decided sync.WaitGroup
	decided.Add(parallel)
	for range parallel {
		all.Go(func() {
			call, err := s.Admit(t.Context(), registry.CallInfo{})
			decided.Done()
			if err != nil {
				wantStopped(t, err, registry.LimitTurns)
				return
			}
			admitted.Add(1)
			<-release
			commit(t, call, registry.Response{})
		})
	}
	decided.Wait()
	wantState(t, s, registry.StateActive, "")
	close(release)
	all.Wait()
	if got := admitted.Load(); got != 1 {
		t.Errorf("%d calls were admitted for one turn", got)
	}
	wantState(t, s, registry.StateStopped, registry.LimitTurns)
	if got := s.Summary().Turns; got != 3 {
		t.Errorf("%d turns; want 3", got)
	}
}

func TestFailedCallGivesItsTurnBack(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(1))}})
	call := admit(t, s)
	_, err := s.Admit(t.Context(), registry.CallInfo{})
	wantStopped(t, err, registry.LimitTurns)
	call.Fail(registry.Failure{Kind: registry.FailureUpstreamError})
	call.Close()
	wantState(t, s, registry.StateActive, "")
	take(t, s, 1, 1)
	wantState(t, s, registry.StateActive, "")
	_, err = s.Admit(t.Context(), registry.CallInfo{})
	wantStopped(t, err, registry.LimitTurns)
	wantState(t, s, registry.StateStopped, registry.LimitTurns)
}

func TestZeroIsALimitLikeAnyOther(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	for _, limits := range []registry.Limits{{MaxTurns: new(int64(0))}, {MaxInputTokens: new(int64(0))}} {
		s, _ := register(t, r, registry.Spec{Limits: limits})
		if _, err := s.Admit(t.Context(), registry.CallInfo{}); err == nil {
			t.Errorf("a call was admitted under %+v", limits)
		}
	}
}

func TestTokenLimitsAreCheckedInOrder(t *testing.T) {
	limit := new(int64(100))
	for _, test := range []struct {
		name          string
		limits        registry.Limits
		input, output int64
		want          string
	}{
		{"turns first", registry.Limits{MaxTurns: new(int64(1)), MaxInputTokens: limit}, 100, 0, registry.LimitTurns},
		{"input", registry.Limits{MaxInputTokens: limit, MaxOutputTokens: limit, MaxTotalTokens: limit}, 100, 100, registry.LimitInputTokens},
		{"output", registry.Limits{MaxInputTokens: limit, MaxOutputTokens: limit, MaxTotalTokens: limit}, 99, 100, registry.LimitOutputTokens},
		{"total", registry.Limits{MaxInputTokens: limit, MaxTotalTokens: limit, MaxContextTokens: limit}, 50, 50, registry.LimitTotalTokens},
		{"context", registry.Limits{MaxTotalTokens: new(int64(101)), MaxContextTokens: limit}, 60, 40, registry.LimitContextTokens},
		{"none", registry.Limits{MaxInputTokens: limit, MaxOutputTokens: limit, MaxContextTokens: limit}, 98, 1, ""},
	} {
		r := newRegistry(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{Limits: test.limits})
		take(t, s, test.input, test.output)
		wantState(t, s, registry.StateActive, "")
		call, err := s.Admit(t.Context(), registry.CallInfo{})
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", test.name, err)
			} else {
				call.Close()
			}
			continue
		}
		wantStopped(t, err, test.want)
		wantState(t, s, registry.StateStopped, test.want)
	}
}

func TestContextLimitIsOfTheLastTurnAlone(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxContextTokens: new(int64(100))}})
	for range 5 {
		take(t, s, 60, 30)
	}
	take(t, s, 80, 20)
	_, err := s.Admit(t.Context(), registry.CallInfo{})
	wantStopped(t, err, registry.LimitContextTokens)
}

func TestStopRulesStopAfterTheTurnThatMeetsThem(t *testing.T) {
	conditions := []registry.StopCondition{
		{Name: "submitted", ToolCall: "submit"},
		{Name: "gave_up", TextRegexp: regexp.MustCompile(`I cannot (solve|do) this`)},
	}
	for _, test := range []struct {
		choice registry.Choice
		want   string
	}{
		{registry.Choice{Text: said("fine"), ToolCalls: []string{"search"}}, ""},
		{registry.Choice{ToolCalls: []string{"search", "submit"}}, "submitted"},
		{registry.Choice{Text: said("Sorry, I cannot do this.")}, "gave_up"},
		{registry.Choice{Text: said("I cannot do this"), ToolCalls: []string{"submit"}}, "submitted"},
	} {
		r := newRegistry(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{StopConditions: conditions})
		turn := commit(t, admit(t, s), registry.Response{Choices: []registry.Choice{{Text: said("first")}, test.choice}})
		if turn.Choices[0].Text != nil {
			t.Error("the text is kept")
		}
		if test.want == "" {
			wantState(t, s, registry.StateActive, "")
			continue
		}
		wantState(t, s, registry.StateStopped, test.want)
		_, err := s.Admit(t.Context(), registry.CallInfo{})
		wantStopped(t, err, test.want)
	}
}

func TestStopKeepsTheFirstConditionAndNothingRevives(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{ID: "a"})
	call := admit(t, s)
	call.StopSession(registry.ConditionContextLength)
	if err := s.Stop("", false); err != nil {
		t.Fatal(err)
	}
	wantState(t, s, registry.StateStopped, registry.ConditionContextLength)
	if call.Context().Err() != nil {
		t.Error("the call in flight was cancelled")
	}
	if err := s.Update(func(spec *registry.Spec) error { spec.Limits.MaxTurns = new(int64(9)); return nil }); err != nil {
		t.Fatal(err)
	}
	_, err := s.Admit(t.Context(), registry.CallInfo{})
	wantStopped(t, err, registry.ConditionContextLength)
	if err := s.Stop("other", true); err != nil {
		t.Fatal(err)
	}
	if call.Context().Err() == nil {
		t.Error("the call in flight was not cancelled")
	}
	call.Close()
	if _, err := r.End(t.Context(), "a", registry.EndOptions{}); err != nil {
		t.Fatal(err)
	}
	wantEnded(t, s.Stop("late", false), registry.ReasonDeleted)
	wantState(t, s, registry.StateEnded, registry.ConditionContextLength)
}

func TestDurationCountsFromTheFirstCallAndCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{Limits: registry.Limits{MaxDuration: new(time.Minute)}})
		time.Sleep(10 * time.Minute)
		began := time.Now()
		call := admit(t, s)
		<-call.Context().Done()
		if got := time.Since(began); got != time.Minute {
			t.Errorf("cancelled after %v; want a minute", got)
		}
		wantStopped(t, contextCause(call), registry.LimitDuration)
		call.Close()
		wantState(t, s, registry.StateStopped, registry.LimitDuration)
	})
}

func TestUpdateMovesTheEndOfTheDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := running(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{})
		take(t, s, 1, 1)
		time.Sleep(time.Minute)
		call := admit(t, s)
		setDuration := func(d time.Duration) {
			if err := s.Update(func(spec *registry.Spec) error { spec.Limits.MaxDuration = new(d); return nil }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		setDuration(3 * time.Minute)
		setDuration(2 * time.Minute)
		time.Sleep(59 * time.Second)
		wantState(t, s, registry.StateActive, "")
		setDuration(time.Second)
		wantState(t, s, registry.StateStopped, registry.LimitDuration)
		if call.Context().Err() == nil {
			t.Error("the call goes on")
		}
		call.Close()
	})
}
