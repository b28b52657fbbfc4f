package proxy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// net/http's server waits half a second before it closes a connection whose
// request it did not read to the end, and nobody can wait for that.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const upstreamKey = "sk-upstream-credential"

// A stack is the whole data plane, from a client through muxproxy to a
// scripted upstream, on sockets or, in a synctest bubble, on memory.
type stack struct {
	t         *testing.T
	model     *scripted.Upstream
	proxy     *proxy.Proxy
	registry  *registry.Registry
	upstreams *upstream.Set
	metrics   *prometheus.Registry
	logs      *logs
	client    *http.Client
	url       string
	modelURL  string
}

// settings are what a test changes of a stack.
type settings struct {
	proxy    proxy.Options
	registry registry.Options
	upstream upstream.Config
	dial     func(ctx context.Context, network, addr string) (net.Conn, error) // to the upstream
	memory   bool                                                              // no sockets
	tls      *tls.Config                                                       // of https upstreams
}

type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

func newStack(t *testing.T, change ...func(*settings)) *stack {
	t.Helper()
	var set settings
	for _, f := range change {
		f(&set)
	}
	s := &stack{t: t, model: scripted.New(), metrics: prometheus.NewRegistry(), logs: &logs{}}
	var err error
	if s.registry, err = registry.New(set.registry); err != nil {
		t.Fatal(err)
	}

	modelListener, dialModel := listen(t, set.memory)
	model, err := scripted.Start(s.model, modelListener)
	if err != nil {
		t.Fatal(err)
	}
	s.modelURL = model.URL
	t.Cleanup(func() { model.Close() })

	if set.dial != nil {
		dialModel = set.dial
	}
	s.upstreams = upstream.NewSet(upstream.Options{Dial: dialModel, ConnectTimeout: 2 * time.Second, TLS: set.tls})
	t.Cleanup(s.upstreams.Close)
	config := set.upstream
	if len(config.Replicas) == 0 {
		config.Replicas = []upstream.ReplicaConfig{{Name: "r0", URL: model.URL}}
	}
	if config.APIKey == "" {
		config.APIKey = upstreamKey
	}
	if err := s.upstreams.Put("default", config); err != nil {
		t.Fatal(err)
	}

	options := set.proxy
	options.Registry, options.Upstreams = s.registry, s.upstreams
	options.Logger = zerolog.New(s.logs)
	options.Metrics, err = metrics.New(s.metrics, metrics.Sources{
		Registry:  s.registry.Stats,
		Upstreams: func() []metrics.UpstreamState { return []metrics.UpstreamState{{Name: "default"}} },
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := proxy.New(options)
	if err != nil {
		t.Fatal(err)
	}
	s.proxy = p
	listener, dial := listen(t, set.memory)
	server := &http.Server{Handler: p.Handler("nonce-1")}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	transport := &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 1 << 10}
	s.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.url = "http://" + listener.Addr().String()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		serving.Wait()
	})
	return s
}

func inMemory(s *settings) { s.memory = true }

func listen(t *testing.T, memory bool) (net.Listener, func(ctx context.Context, network, addr string) (net.Conn, error)) {
	t.Helper()
	if memory {
		n := scripted.NewNetwork()
		return n, n.DialContext
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, (&net.Dialer{}).DialContext
}

// A rollout is a registered session as its harness sees it.
type rollout struct {
	*stack
	session *registry.Session
	secret  string
}

func (s *stack) register(spec registry.Spec) *rollout {
	s.t.Helper()
	registered, err := s.registry.Register(spec)
	if err != nil {
		s.t.Fatal(err)
	}
	return &rollout{s, registered[0].Session, registered[0].Secret}
}

// request makes a request of the rollout's harness.
func (r *rollout) request(method, path, body string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.secret)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

// An answer is a response read to its end.
type answer struct {
	*http.Response
	body []byte
	err  error // that reading ended with, nil for a clean end
}

func (s *stack) do(req *http.Request) answer {
	s.t.Helper()
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res, body, err}
}

const chatPath = "/v1/chat/completions"

// chat makes one call of the model that plays a script; extra is more fields.
func (r *rollout) chat(model, extra string) answer {
	r.t.Helper()
	return r.do(r.request(http.MethodPost, chatPath, chatBody(model, extra)))
}

func chatBody(model, extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"` + model + `","messages":[{"role":"user","content":"hi"}]` + extra + `}`
}

const streaming = `"stream":true`

// wantError checks an error of muxproxy's own.
func (a answer) wantError(t *testing.T, status int, code string) {
	t.Helper()
	var body struct {
		Error struct {
			Message, Type, Code string
		}
	}
	if err := json.Unmarshal(a.body, &body); err != nil || a.StatusCode != status || body.Error.Code != code || body.Error.Message == "" || body.Error.Type == "" {
		t.Errorf("got status %d, body %s; want status %d, code %s", a.StatusCode, a.body, status, code)
	}
}

// settle waits until no call of the rollout is in flight: a client has its last
// byte a moment before the server knows that it was written.
func (r *rollout) settle() {
	r.t.Helper()
	for r.session.Summary().Inflight > 0 {
		if r.t.Context().Err() != nil {
			r.t.Fatal("calls are still in flight")
		}
		runtime.Gosched()
	}
}

func (r *rollout) turns() []*registry.Turn { return r.trace().Turns }

func (r *rollout) trace() registry.Trace {
	r.t.Helper()
	trace, err := r.session.Trace()
	if err != nil {
		r.t.Fatal(err)
	}
	return trace
}

// wantTurns checks how many turns and failed calls the trace has.
func (r *rollout) wantTurns(turns int, failures ...registry.FailureKind) {
	r.t.Helper()
	trace := r.trace()
	var kinds []registry.FailureKind
	for _, f := range trace.FailedCalls {
		kinds = append(kinds, f.Error.Kind)
	}
	if len(trace.Turns) != turns || len(kinds) != len(failures) {
		r.t.Errorf("the trace has %d turns and failed calls %v; want %d and %v", len(trace.Turns), kinds, turns, failures)
		return
	}
	for i, kind := range failures {
		if kinds[i] != kind {
			r.t.Errorf("failed call %d is %s: %s; want %s", i, kinds[i], trace.FailedCalls[i].Error.Message, kind)
		}
	}
}

// closedPort is a URL that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// at points a stack at other replicas than the scripted upstream.
func at(urls ...string) func(*settings) {
	return func(s *settings) {
		for i, url := range urls {
			s.upstream.Replicas = append(s.upstream.Replicas, upstream.ReplicaConfig{Name: "r" + strconv.Itoa(i), URL: url})
		}
	}
}
