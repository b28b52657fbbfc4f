package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "a-token-of-the-tests"

// harness is the API over a real registry and real upstreams.
type harness struct {
	t         *testing.T
	url       string
	registry  *registry.Registry
	upstreams *upstream.Set
	pool      *pool
	log       *syncBuffer
	client    *http.Client
}

func newHarness(t *testing.T, change ...func(*registry.Options, *admin.Options)) *harness {
	t.Helper()
	h := &harness{t: t, pool: newPool(), log: &syncBuffer{}}
	regOpts := registry.Options{Ended: h.pool.Release}
	opts := admin.Options{Token: token, Logger: zerolog.New(h.log).Level(zerolog.TraceLevel), Pool: h.pool}
	for _, c := range change {
		c(&regOpts, &opts)
	}
	reg, err := registry.New(regOpts)
	if err != nil {
		t.Fatal(err)
	}
	h.registry = reg
	h.upstreams = upstream.NewSet(upstream.Options{})
	t.Cleanup(h.upstreams.Close)
	opts.Registry, opts.Upstreams = reg, h.upstreams
	api, err := admin.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Handler())
	t.Cleanup(server.Close)
	h.url, h.client = server.URL, server.Client()
	return h
}

// reply is an answer that has been read whole.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request with the token; body is a string, or is encoded as JSON.
func (h *harness) do(method, path string, body any, headers ...string) reply {
	h.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			h.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, r)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatalf("%s %s: read answer: %v", method, path, err)
	}
	return reply{resp, raw}
}

// want sends a request and decodes its answer, which must have this status.
func (h *harness) want(status int, method, path string, body any, headers ...string) value {
	h.t.Helper()
	r := h.do(method, path, body, headers...)
	if r.StatusCode != status {
		h.t.Fatalf("%s %s: got %d %s; want %d", method, path, r.StatusCode, r.body, status)
	}
	if len(r.body) == 0 {
		return nil
	}
	return h.decode(r.body)
}

func (h *harness) decode(raw []byte) value {
	h.t.Helper()
	var v value
	if err := json.Unmarshal(raw, &v); err != nil {
		h.t.Fatalf("decode %s: %v", raw, err)
	}
	return v
}

// problem sends a request that must fail with this status and code.
func (h *harness) problem(status int, code, method, path string, body any, headers ...string) reply {
	h.t.Helper()
	r := h.do(method, path, body, headers...)
	if r.StatusCode != status {
		h.t.Fatalf("%s %s: got %d %s; want %d", method, path, r.StatusCode, r.body, status)
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/problem+json" {
		h.t.Errorf("%s %s: got content type %q; want application/problem+json", method, path, ct)
	}
	p := h.decode(r.body)
	if p["code"] != code {
		h.t.Errorf("%s %s: got code %v; want %s (%s)", method, path, p["code"], code, r.body)
	}
	if got, ok := p["status"].(float64); !ok || int(got) != status {
		h.t.Errorf("%s %s: got status %v in the body; want %d", method, path, p["status"], status)
	}
	return r
}

// locations are the parts of the request that a problem names.
func (h *harness) locations(r reply) []string {
	h.t.Helper()
	var p struct {
		Errors []struct{ Location string }
	}
	if err := json.Unmarshal(r.body, &p); err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for _, e := range p.Errors {
		all = append(all, e.Location)
	}
	return all
}

func (h *harness) register(body value) value {
	h.t.Helper()
	return h.want(http.StatusCreated, http.MethodPost, "/sessions", body)
}

// turn records one turn of the session.
func (h *harness) turn(id, request string, resp registry.Response) *registry.Turn {
	h.t.Helper()
	s, err := h.registry.Get(id)
	if err != nil {
		h.t.Fatal(err)
	}
	call, err := s.Admit(h.t.Context(), registry.CallInfo{Dialect: "chat", Route: "/v1/chat/completions", RequestID: "req-1"})
	if err != nil {
		h.t.Fatal(err)
	}
	defer call.Close()
	call.Record(registry.Request{Body: []byte(request), Model: "m"})
	t, err := call.Commit(resp)
	if err != nil {
		h.t.Fatal(err)
	}
	return t
}

// fail records one failed call of the session.
func (h *harness) fail(id, request string, f registry.Failure) {
	h.t.Helper()
	s, err := h.registry.Get(id)
	if err != nil {
		h.t.Fatal(err)
	}
	call, err := s.Admit(h.t.Context(), registry.CallInfo{Dialect: "chat", Route: "/v1/chat/completions", RequestID: "req-f"})
	if err != nil {
		h.t.Fatal(err)
	}
	defer call.Close()
	call.Record(registry.Request{Body: []byte(request), Model: "m"})
	call.Fail(f)
}

// value is a decoded JSON object.
type value = map[string]any

// at digs into nested objects.
func at(v value, path ...string) any {
	var here any = v
	for _, key := range path {
		m, ok := here.(value)
		if !ok {
			return nil
		}
		here = m[key]
	}
	return here
}

func texts(v any) []string {
	list, _ := v.([]any)
	out := make([]string, 0, len(list))
	for _, e := range list {
		s, _ := e.(string)
		out = append(out, s)
	}
	return out
}

// pool is one server with room for everything, unless full is set or room is
// above zero.
type pool struct {
	mu      sync.Mutex
	full    bool
	room    int
	err     error
	placed  map[string]registry.Placement
	asked   [][]string    // the sessions of each call of Place
	waits   chan struct{} // gets a value when somebody begins to wait
	servers []admin.Server
	drained []string
}

func newPool() *pool {
	return &pool{placed: make(map[string]registry.Placement), waits: make(chan struct{}, 64)}
}

func (p *pool) Place(ctx context.Context, ids ...string) ([]registry.Placement, error) {
	p.mu.Lock()
	p.asked = append(p.asked, ids)
	wait := p.full || p.room > 0 && len(p.placed)+len(ids) > p.room
	err := p.err
	var all []registry.Placement
	for _, id := range ids {
		if wait || err != nil {
			break
		}
		p.placed[id] = registry.Placement{Server: "srv-1", URL: "https://abc.example.net", Generation: 1}
		all = append(all, p.placed[id])
	}
	p.mu.Unlock()
	if err == nil && wait {
		p.waits <- struct{}{}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return all, err
}

func (p *pool) Release(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.placed, id)
}

func (p *pool) Servers() []admin.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.servers)
}

func (p *pool) Drain(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drained = append(p.drained, id)
	for i, s := range p.servers {
		switch {
		case s.ID != id:
		case s.Load > 0:
			p.servers[i].State = "draining"
			return nil
		default:
			p.servers = slices.Delete(p.servers, i, i+1)
			return nil
		}
	}
	return admin.ErrNoServer
}

func (p *pool) set(change func(*pool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.placed)
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
