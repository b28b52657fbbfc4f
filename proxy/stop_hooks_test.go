package proxy_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy/hook"
	"github.com/muxproxy/muxproxy/registry"
)

// hooked gives a stack a hook that this handler is, at http://localhost.
func hooked(t *testing.T, handler http.HandlerFunc) func(*settings) {
	t.Helper()
	return func(s *settings) {
		network := scripted.NewNetwork()
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(network) }()
		client := hook.New(hook.Options{Dial: network.DialContext})
		s.proxy.Hooks = client
		t.Cleanup(func() {
			client.Close()
			server.Close()
		})
	}
}

// question is what a hook was asked.
type question struct {
	Session struct {
		ID       string
		Labels   map[string]string
		Metadata any
	}
	Condition string
	Turn      struct {
		Index             int
		Dialect, Model    string
		Request, Response map[string]any
	}
}

func read(t *testing.T, r *http.Request) (q question) {
	t.Helper()
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		t.Error(err)
	}
	return q
}

func judged() registry.Spec {
	return registry.Spec{
		ID: "a", Labels: map[string]string{"env": "gsm8k"}, Metadata: json.RawMessage(`{"row":42}`),
		StopConditions: []registry.StopCondition{{Name: "judge", Hook: &registry.Hook{URL: "http://localhost/stop", Timeout: 30 * time.Second}}},
	}
}

func TestStopConditionWithAURLIsAskedBeforeTheTurnEnds(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		var asked []question
		synctest.Test(t, func(t *testing.T) {
			s := newStack(t, inMemory, hooked(t, func(w http.ResponseWriter, r *http.Request) {
				q := read(t, r)
				asked = append(asked, q)
				_ = json.NewEncoder(w).Encode(map[string]bool{"stop": q.Turn.Index == 1})
			}))
			s.model.Func("m", answering)
			r := s.register(judged())
			for i := range 2 {
				if got := r.chat("m", extra); got.StatusCode != http.StatusOK || got.err != nil {
					t.Fatalf("turn %d: got %d, %v", i, got.StatusCode, got.err)
				}
				if got := r.session.State(); (got == registry.StateStopped) != (i == 1) {
					t.Errorf("after turn %d was read: got %s", i, got)
				}
			}
			r.chat("m", extra).wantError(t, http.StatusBadRequest, "session_stopped")
			r.wantTurns(2)
			if got := r.session.Summary().StopCondition; got != "judge" {
				t.Errorf("got %q; want judge", got)
			}
			if len(asked) != 2 {
				t.Fatalf("got %d questions; want 2", len(asked))
			}
			q := asked[0]
			if q.Session.ID != "a" || q.Session.Labels["env"] != "gsm8k" || q.Session.Metadata == nil || q.Condition != "judge" ||
				q.Turn.Dialect != "chat" || q.Turn.Request["model"] != "m" || q.Turn.Response["choices"] == nil {
				t.Errorf("got %+v", q)
			}
		})
	}
}

func TestHookThatFailsCostsNoTurnAndIsAskedAgain(t *testing.T) {
	for name, failing := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"silence": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		},
		"no stop": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"done":true}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := true
				var asked []int
				s := newStack(t, inMemory, hooked(t, func(w http.ResponseWriter, r *http.Request) {
					if broken {
						failing(w, r)
						return
					}
					asked = append(asked, read(t, r).Turn.Index)
					_, _ = io.WriteString(w, `{"stop":false}`)
				}))
				s.model.Func("m", answering)
				r := s.register(judged())
				if got := r.chat("m", streaming); got.StatusCode != http.StatusOK || got.err != nil {
					t.Errorf("the turn itself: got %d, %v; want it whole", got.StatusCode, got.err)
				}
				got := r.chat("m", "")
				got.wantError(t, http.StatusBadGateway, "hook_failed")
				if got.Header.Get("X-Should-Retry") != "" {
					t.Error("want nothing said against retrying")
				}
				r.wantTurns(1)
				broken = false
				if got := r.chat("m", ""); got.StatusCode != http.StatusOK {
					t.Errorf("once the hook answers: got %d %s", got.StatusCode, got.body)
				}
				if len(asked) != 2 || asked[0] != 0 || asked[1] != 1 {
					t.Errorf("asked about turns %v; want 0, then 1", asked)
				}
				r.wantTurns(2)
			})
		})
	}
}
