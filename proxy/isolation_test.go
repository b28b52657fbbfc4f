package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/registry"
)

var marks = regexp.MustCompile(`r\d+t\d+`)

// echo answers with the last mark of the request, in several events if a stream
// was asked for.
func echo(r *scripted.Request) scripted.Script {
	all := marks.FindAll(r.Body, -1)
	mark := all[len(all)-1]
	if !bytes.Contains(r.Body, []byte(streaming)) {
		return scripted.JSON(fmt.Appendf(nil, `{"id":"%s","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"%s"}}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":1}}`, mark, strings.Repeat(string(mark)+" ", 200), len(r.Body)))
	}
	var b bytes.Buffer
	for range 20 {
		fmt.Fprintf(&b, `data: {"id":"%s","choices":[{"index":0,"delta":{"content":"%s "},"finish_reason":null}]}`+"\n\n", mark, mark)
	}
	fmt.Fprintf(&b, `data: {"id":"%s","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", mark)
	s := scripted.SSE(b.Bytes())
	s.Cut = scripted.Events
	return s
}

// L34, L40: many rollouts at once share nothing that shows.
func TestParallelRolloutsKeepToThemselves(t *testing.T) {
	const rollouts, turns = 64, 5
	s := newStack(t)
	s.model.Func("echo", echo)
	var running sync.WaitGroup
	all := make([]*rollout, rollouts)
	received := make([][]string, rollouts)
	sent := make([][]string, rollouts)
	for i := range rollouts {
		all[i] = s.register(registry.Spec{ID: fmt.Sprintf("r%d", i)})
		running.Go(func() {
			r := all[i]
			messages := `{"role":"system","content":"one text for all"}`
			for n := range turns {
				messages += fmt.Sprintf(`,{"role":"user","content":"r%dt%d"}`, i, n)
				body := `{"model":"echo","messages":[` + messages + `]}`
				if (i+n)%2 == 0 {
					body = `{"model":"echo",` + streaming + `,"stream_options":{"include_usage":true},"messages":[` + messages + `]}`
				}
				got := r.do(r.request(http.MethodPost, chatPath, body))
				if got.StatusCode != 200 || got.err != nil {
					t.Errorf("rollout %d, turn %d: %d, %v", i, n, got.StatusCode, got.err)
				}
				messages += fmt.Sprintf(`,{"role":"assistant","content":"%s"}`, strings.Repeat(fmt.Sprintf("r%dt%d ", i, n), map[bool]int{true: 20, false: 200}[(i+n)%2 == 0]))
				received[i], sent[i] = append(received[i], string(got.body)), append(sent[i], body)
			}
		})
	}
	running.Wait()
	for i, r := range all {
		r.wantTurns(turns)
		for n, turn := range r.turns() {
			if string(turn.Request()) != sent[i][n] || string(turn.Response()) != received[i][n] {
				t.Errorf("rollout %d, turn %d holds\n%s\n%s\nwant\n%s\n%s", i, n, turn.Request(), turn.Response(), sent[i][n], received[i][n])
			}
			for _, mark := range marks.FindAllString(string(turn.Response()), -1) {
				if mark != fmt.Sprintf("r%dt%d", i, n) {
					t.Fatalf("rollout %d, turn %d was answered %s", i, n, mark)
				}
			}
			if n > 0 && (turn.Parent == nil || *turn.Parent != n-1) {
				t.Errorf("rollout %d, turn %d continues %v, want %d", i, n, turn.Parent, n-1)
			}
		}
	}
}

// until waits for something that happens soon.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !happened(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 10 s", what)
		}
		runtime.Gosched()
	}
}

// R44: whatever calls end like, nothing of them is left.
func TestNothingIsLeftOfAThousandMixedEnds(t *testing.T) {
	s := newStack(t, func(s *settings) {
		s.proxy.FirstByteTimeout, s.proxy.IdleTimeout = 60*time.Millisecond, 60*time.Millisecond
		s.registry.AdmitTimeout = 20 * time.Millisecond
	})
	idle := runtime.NumGoroutine()
	models := []string{
		"openai", "openai", "vllm", "429", "openai", "500", "404", "openai", "stream-abort", "html", "openai", "stream-reset", "openai", "reset-at-once",
		"refuses-usage", "openai", "error-200", "silent", "openai", "stream-hang", "sglang-abort", "openai", "stream-error-first", "truncated-length",
		"gzip", "openai", "stream-no-terminal", "400-context-openai", "stream-comments-only", "401",
	}
	var running sync.WaitGroup
	const workers, each = 25, 40
	for w := range workers {
		running.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range each {
				s.endSomehow(random, models[random.IntN(len(models))])
			}
		})
	}
	running.Wait()
	until(t, "all calls ended", func() bool { return s.busy() == "" })
	if exposition := s.exposition(); !strings.Contains(exposition, "\nmuxproxy_inflight_requests 0\n") {
		t.Errorf("the gauge is not at zero:\n%s", linesWith(exposition, "inflight"))
	}
	for _, outcome := range []string{"ok", "client_error", "upstream_error", "upstream_truncated", "upstream_timeout", "connection", "client_disconnected", "cancelled", "refused"} {
		if s.outcomes()[outcome] == 0 {
			t.Errorf("no request ended as %s: %v", outcome, s.outcomes())
		}
	}
	s.client.CloseIdleConnections()
	s.upstreams.Close()
	until(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= idle })
}

// busy says what is not idle.
func (s *stack) busy() string {
	if n := s.registry.Stats(); n.Inflight != 0 || n.Waiting != 0 {
		return fmt.Sprintf("the registry: %+v", n)
	}
	for _, u := range s.upstreams.List() {
		for _, replica := range u.Replicas {
			if replica.Inflight != 0 {
				return fmt.Sprintf("replica %s: %d", replica.Name, replica.Inflight)
			}
		}
	}
	return ""
}

// endSomehow makes a call that ends in one of many ways.
func (s *stack) endSomehow(random *rand.Rand, model string) {
	spec := registry.Spec{}
	if random.IntN(4) == 0 {
		spec.Limits.MaxInflight = new(1)
	}
	r := s.register(spec)
	extra := []string{"", streaming}[random.IntN(2)]
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	req := r.request(http.MethodPost, chatPath, chatBody(model, extra)).WithContext(ctx)
	switch random.IntN(12) {
	case 0:
		req.Header.Set("Authorization", "Bearer wrong")
	case 1:
		req.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", int(req.ContentLength))))
	case 2, 3:
		defer time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, leave).Stop()
	case 4:
		defer time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, func() {
			_, _ = s.registry.End(context.WithoutCancel(ctx), r.session.ID(), registry.EndOptions{Purge: true})
		}).Stop()
	case 5:
		defer time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, func() { _ = r.session.Stop("enough", true) }).Stop()
	case 6: // two at once
		defer s.finish(r.request(http.MethodPost, chatPath, chatBody("silent", "")).WithContext(ctx))
	}
	s.finish(req)
}

// finish sends a request and reads its answer, if there is one, to its end.
func (s *stack) finish(req *http.Request) {
	if res, err := s.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

// R104: connections to the upstream are shared by all rollouts.
func TestUpstreamConnectionsAreReused(t *testing.T) {
	s := newStack(t)
	const callers, rounds = 256, 4
	var running sync.WaitGroup
	for i := range callers {
		r := s.register(registry.Spec{})
		running.Go(func() {
			for n := range rounds {
				if got := r.chat("openai", []string{"", streaming}[(i+n)%2]); got.StatusCode != 200 || got.err != nil {
					t.Errorf("%d %v %s", got.StatusCode, got.err, got.body)
				}
			}
		})
	}
	running.Wait()
	if n := s.model.Connections(); n > 300 {
		t.Errorf("%d calls, %d at a time, took %d connections", callers*rounds, callers, n)
	}
}

// R111: what clients make up adds no series.
func TestSeriesDoNotGrowWithWhatClientsSend(t *testing.T) {
	s := newStack(t)
	series := prometheus.NewRegistry()
	handler := s.handler(series, proxy.Options{})
	r := s.register(registry.Spec{})
	random := rand.New(rand.NewPCG(1, 1))
	sendAll := func(n int) int {
		for range n {
			handler.ServeHTTP(httptest.NewRecorder(), r.madeUp(random))
		}
		families, err := series.Gather()
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, family := range families {
			lines += len(family.GetMetric())
		}
		return lines
	}
	before := sendAll(1000)
	if after := sendAll(10_000); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

// madeUp is a request with parts that nobody has heard of.
func (r *rollout) madeUp(random *rand.Rand) *http.Request {
	word := func() string { return fmt.Sprintf("x%x", random.Uint64()) }
	method, path, body, secret := http.MethodPost, chatPath, "", r.secret
	switch random.IntN(6) {
	case 0:
		path = "/" + word() + "/" + word()
	case 1:
		method, path = strings.ToUpper(word()), []string{chatPath, "/v1/models", "/", "/healthz", "/" + word()}[random.IntN(5)]
	case 2:
		secret = word()
	case 3:
		body = `{"` + word() + `":1}`
	case 4:
		path += "?" + word() + "=1"
		if random.IntN(20) == 0 {
			body = chatBody(word(), `"user":"`+word()+`"`)
		}
	case 5:
		method, path, secret = http.MethodGet, "/v1/models/"+word(), word()
	}
	req := httptest.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("X-Request-Id", word())
	req.Header.Set(word(), word())
	return req
}
