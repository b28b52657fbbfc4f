package proxy_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/registry"
)

// R39: every request is recorded once, with how it ended.
func TestEveryRequestIsLoggedOnceWithItsEnd(t *testing.T) {
	usage := streaming + `,"stream_options":{"include_usage":true}`
	for _, c := range []struct {
		model, extra string
		want         logged
	}{
		{"openai", "", logged{Outcome: "ok", Status: 200}},
		{"openai", usage, logged{Outcome: "ok", Status: 200, Stream: true, End: "done"}},
		{"stream-no-done", usage, logged{Outcome: "ok", Status: 200, Stream: true, End: "eof"}},
		{"stream-abort", usage, logged{Outcome: "upstream_truncated", Status: 200, Stream: true, End: "reset"}},
		{"stream-reset", usage, logged{Outcome: "upstream_truncated", Status: 200, Stream: true, End: "reset"}},
		{"stream-no-terminal", usage, logged{Outcome: "upstream_truncated", Status: 200, Stream: true, End: "reset"}},
		{"stream-hang", usage, logged{Outcome: "upstream_timeout", Status: 200, Stream: true, End: "idle_timeout"}},
		{"stream-error-first", usage, logged{Outcome: "upstream_error", Status: 200, Stream: true, End: "error"}},
		{"sglang-abort", streaming, logged{Outcome: "aborted", Status: 200, Stream: true, End: "aborted"}},
		{"sglang-abort", "", logged{Outcome: "aborted", Status: 503}},
		{"silent", usage, logged{Outcome: "upstream_timeout", Status: 504}},
		{"silent", "", logged{Outcome: "upstream_timeout", Status: 504}},
		{"429", usage, logged{Outcome: "client_error", Status: 429}},
		{"404", "", logged{Outcome: "client_error", Status: 404}},
		{"500", "", logged{Outcome: "upstream_error", Status: 500}},
		{"401", "", logged{Outcome: "upstream_error", Status: 502}},
		{"html", "", logged{Outcome: "upstream_error", Status: 502}},
		{"error-200", "", logged{Outcome: "upstream_error", Status: 200}},
		{"truncated-length", "", logged{Outcome: "upstream_truncated", Status: 502}},
		{"reset-at-once", "", logged{Outcome: "connection", Status: 502}},
		{"openai", `"stream":1`, logged{Outcome: "refused", Status: 400}},
	} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			r.chat(c.model, c.extra)
			synctest.Wait()
			all := s.logged()
			if len(all) != 1 {
				s.t.Fatalf("%s, %s: %d lines were logged:\n%s", c.model, c.extra, len(all), s.logs)
			}
			got := all[0]
			if got.Error == "" && c.want.Outcome != "ok" && c.want.Outcome != "client_error" && c.want.Status < 500 && c.want.End != "error" && c.want.Status != 200 {
				s.t.Errorf("%s, %s: no error was logged", c.model, c.extra)
			}
			got.Error, c.want.Route = "", "/v1/chat/completions"
			if got != c.want {
				s.t.Errorf("%s, %s: logged %+v, want %+v", c.model, c.extra, got, c.want)
			}
			if counts := s.outcomes(); len(counts) != 1 || counts[c.want.Outcome] != 1 {
				s.t.Errorf("%s, %s: counted %v, want one %s", c.model, c.extra, counts, c.want.Outcome)
			}
			s.wantIdle()
		}, func(s *settings) { s.proxy.FirstByteTimeout, s.proxy.IdleTimeout = time.Minute, time.Minute })
	}
}

func TestClientThatLeavesIsLoggedOnce(t *testing.T) {
	for model, want := range map[string]logged{
		"silent":      {Outcome: "client_disconnected", Status: 499},
		"stream-hang": {Outcome: "client_disconnected", Status: 200, End: "client_gone"},
	} {
		bubble(t, func(s *stack) {
			s.model.Script("silent", hanging())
			r := s.register(registry.Spec{})
			req, leave := abandonable(r.request(http.MethodPost, chatPath, chatBody(model, streaming)))
			r.leaveOnce(req, leave)()
			s.wantLogged(want)
			if counts := s.outcomes(); len(s.logged()) != 1 || len(counts) != 1 || counts["client_disconnected"] != 1 {
				s.t.Errorf("%s: counted %v, logged\n%s", model, counts, s.logs)
			}
			s.wantIdle()
		})
	}
}

// A client that only closes its sending half still reads: it must not take the
// end of its request for an empty answer.
func TestClientThatLeftIsNotAnswered(t *testing.T) {
	s := newStack(t)
	s.model.Script("silent", hanging())
	r := s.register(registry.Spec{})
	handler := s.handler(prometheus.NewRegistry(), proxy.Options{})
	req, leave := abandonable(httptest.NewRequestWithContext(t.Context(), http.MethodPost, chatPath, strings.NewReader(chatBody("silent", ""))))
	req.Header.Set("Authorization", "Bearer "+r.secret)
	aborted := make(chan any)
	go func() {
		defer func() { aborted <- recover() }()
		handler.ServeHTTP(httptest.NewRecorder(), req)
	}()
	if _, err := s.model.Await(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	leave()
	if got := <-aborted; got != http.ErrAbortHandler { //nolint:errorlint // what net/http compares with
		t.Errorf("the handler ended with %v, so net/http answers 200", got)
	}
}

func TestPanicIsRecordedAndFreesItsPlace(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		s := newStack(t)
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		series := prometheus.NewRegistry()
		handler := s.handler(series, proxy.Options{Keepalive: time.Millisecond})
		for range 2 { // the second would wait for the first one's place
			func() {
				defer func() {
					if recover() == nil {
						t.Error("net/http does not get to see the panic")
					}
				}()
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, chatPath, strings.NewReader(chatBody("openai", extra)))
				req.Header.Set("Authorization", "Bearer "+r.secret)
				handler.ServeHTTP(panicWriter{http.Header{}}, req)
			}()
		}
		if busy := s.busy(); busy != "" {
			t.Errorf("not idle: %s", busy)
		}
		lines := s.logged()
		if len(lines) != 2 || lines[0].Outcome != "aborted" || !strings.Contains(s.logs.String(), `"level":"error"`) || !strings.Contains(s.logs.String(), "the writer is broken") {
			t.Errorf("logged\n%s", s.logs)
		}
		if strings.Contains(s.logs.String(), "abort Handler") {
			t.Errorf("an abort is logged as a panic:\n%s", s.logs) // R48
		}
	}
}

// latePanicWriter panics once the stream has begun.
type latePanicWriter struct{ header http.Header }

func (p latePanicWriter) Header() http.Header { return p.header }
func (latePanicWriter) WriteHeader(int)       {}
func (latePanicWriter) Write(b []byte) (int, error) {
	if len(b) > 0 {
		panic("the writer is broken")
	}
	return 0, nil
}
func (latePanicWriter) Flush() {}

// A relay's timer writes too, and must not outlive the handler.
func TestPanicInAStreamLeavesNoTimer(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		handler := s.handler(prometheus.NewRegistry(), proxy.Options{})
		func() {
			defer func() {
				if recover() == nil {
					s.t.Error("net/http does not get to see the panic")
				}
			}()
			req := httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, chatPath, strings.NewReader(chatBody("stream-hang", streaming)))
			req.Header.Set("Authorization", "Bearer "+r.secret)
			handler.ServeHTTP(latePanicWriter{http.Header{}}, req)
		}()
		pass(time.Hour) // a keepalive would panic in a goroutine of its own
		s.wantIdle()
		r.wantTurns(0, registry.FailureAborted)
	})
}

func TestLogLineSaysWhatAPersonNeeds(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{ID: "rollout-7", Limits: registry.Limits{MaxInflight: new(1)}})
		req := r.request(http.MethodPost, chatPath+"?a=1", chatBody("openai", streaming+`,"stream_options":{"include_usage":true}`))
		req.Header.Set("X-Request-Id", "req-7")
		got := s.do(req)
		synctest.Wait()
		var line map[string]any
		if err := json.Unmarshal([]byte(s.logs.String()), &line); err != nil {
			s.t.Fatal(err)
		}
		want := map[string]any{
			"level": "info", "message": "request", "request_id": "req-7", "session": "rollout-7", "method": "POST", "route": "/v1/chat/completions",
			"status": 200.0, "outcome": "ok", "end": "done", "stream": true, "upstream": "default", "replica": "r0", "turn": 0.0,
			"upstream_request_id": "req_7b6f0c1d2e3a4958b7c6d5e4f3a2b1c0", "input_tokens": 19.0, "output_tokens": 6.0,
			"bytes_in": float64(len(chatBody("openai", streaming+`,"stream_options":{"include_usage":true}`))), "bytes_out": float64(len(got.body)),
		}
		for name, value := range want {
			if line[name] != value {
				s.t.Errorf("%s is %v, want %v", name, line[name], value)
			}
		}
		for name := range line {
			if _, ok := want[name]; !ok && name != "seconds" && name != "overhead_seconds" && name != "first_event_seconds" {
				s.t.Errorf("unexpected %s: %v", name, line[name])
			}
		}
	})
}

// Log, metrics and trace say the same.
func TestMetricsAgreeWithTheTrace(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		for _, model := range []string{"openai", "vllm", "429", "stream-abort", "500", "openai", "html", "error-200", "404", "openai"} {
			r.chat(model, streaming)
		}
		r.chat("openai", `"stream":0`)
		wrong := r.request(http.MethodPost, chatPath, "{}")
		wrong.Header.Del("Authorization")
		s.do(wrong)
		synctest.Wait()
		sum := r.session.Summary()
		fromLog := map[string]int{}
		for _, l := range s.logged() {
			fromLog[l.Outcome]++
		}
		if counts := s.outcomes(); !maps.Equal(counts, fromLog) || len(s.logged()) != 12 {
			s.t.Errorf("metrics say %v, %d log lines %v", counts, len(s.logged()), fromLog)
		}
		if got := s.counter("muxproxy_turns_total"); got != sum.Turns || got != 4 {
			s.t.Errorf("metrics say %d turns, the trace %d, want 4", got, sum.Turns)
		}
		failed := 0
		for _, n := range sum.FailedCalls {
			failed += int(n)
		}
		if got := s.counter("muxproxy_failed_calls_total"); got != failed || got != 6 {
			s.t.Errorf("metrics say %d failed calls, the trace %d, want 6", got, failed)
		}
		if got, want := s.counter("muxproxy_tokens_total"), int(sum.Usage.BilledInputTokens+sum.Usage.OutputTokens+sum.Usage.CachedTokens+sum.Usage.ReasoningTokens); got != want || got == 0 {
			s.t.Errorf("metrics say %d tokens, the trace %d", got, want)
		}
		if got := s.counter("muxproxy_refusals_total"); got != fromLog["refused"] || got != 2 {
			s.t.Errorf("metrics say %d refusals, the log %d, want 2", got, fromLog["refused"])
		}
		for kind, n := range sum.FailedCalls {
			if line := linesWith(s.exposition(), `muxproxy_failed_calls_total{kind="`+string(kind)+`"} `+itoa(int(n))+"\n"); line == "" {
				s.t.Errorf("metrics do not say %d of kind %s", n, kind)
			}
		}
	})
}

// counter sums a counter over its labels.
func (s *stack) counter(name string) (n int) {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				n += int(metric.GetCounter().GetValue())
			}
		}
	}
	return n
}
