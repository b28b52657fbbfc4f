package admin_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/proxy/upstream"
	"github.com/muxproxy/muxproxy/registry"
)

// serve calls the handler without a network, so that the connection can fail at
// the wanted moment.
func serve(ctx context.Context, t *testing.T, w http.ResponseWriter, path, body string) (*registry.Registry, *pool) {
	t.Helper()
	reg, err := registry.New(registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := newPool()
	api, err := admin.New(admin.Options{Registry: reg, Upstreams: upstream.NewSet(upstream.Options{}), Pool: p})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	api.Handler().ServeHTTP(w, r)
	return reg, p
}

// deadConn is a connection that takes nothing any more.
type deadConn struct{ http.ResponseWriter }

func (deadConn) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// fullConn takes bytes into its buffer and fails to send them.
type fullConn struct{ http.ResponseWriter }

func (fullConn) FlushError() error { return errors.New("connection reset by peer") }

func TestRegistrationWhoseAnswerCannotBeWrittenIsUndone(t *testing.T) {
	for name, w := range map[string]http.ResponseWriter{
		"write": deadConn{httptest.NewRecorder()}, "flush": fullConn{httptest.NewRecorder()},
	} {
		for path, body := range map[string]string{
			"/sessions": `{"id": "a"}`, "/sessions/batch": `{"sessions": [{"id": "a"}, {"id": "b"}]}`,
		} {
			reg, p := serve(t.Context(), t, w, path, body)
			if _, err := reg.Get("a"); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("%s %s: got %v; want the session undone", path, name, err)
			}
			if p.count() != 0 {
				t.Errorf("%s %s: got %d places; want 0", path, name, p.count())
			}
			if got := reg.Stats().Registered; got == 0 {
				t.Errorf("%s %s: nothing had been registered", path, name)
			}
		}
	}
}

func TestRegistrationOfAClientThatHasGoneIsUndone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	reg, p := serve(ctx, t, httptest.NewRecorder(), "/sessions", `{"id": "a"}`)
	if _, err := reg.Get("a"); !errors.Is(err, registry.ErrNotFound) || p.count() != 0 {
		t.Errorf("got %v and %d places", err, p.count())
	}
}

func TestClientThatLeavesWhileItWaitsGivesUpItsPlaceInLine(t *testing.T) {
	h := newHarness(t)
	h.pool.set(func(p *pool) { p.full = true })
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/sessions", bytes.NewReader([]byte(`{"id": "a", "secret": "`+secret+`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	left := make(chan error, 1)
	go func() {
		resp, err := h.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	<-h.pool.waits
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// The retry waits until the first attempt is undone, and gets the place.
	h.pool.set(func(p *pool) { p.full = false })
	h.register(value{"id": "a", "secret": secret})
	if h.pool.count() != 1 {
		t.Errorf("got %d places; want 1", h.pool.count())
	}
}

func TestRegistrationsOfOneIDTakeTurns(t *testing.T) {
	h := newHarness(t)
	const many = 16
	statuses := make(chan int, many)
	for range many {
		go func() {
			statuses <- h.do(http.MethodPost, "/sessions", value{"id": "a", "secret": secret}).StatusCode
		}()
	}
	got := map[int]int{}
	for range many {
		got[<-statuses]++
	}
	if got[http.StatusCreated] != 1 || got[http.StatusOK] != many-1 {
		t.Errorf("got %v; want one 201 and the rest 200", got)
	}
	if h.pool.count() != 1 {
		t.Errorf("got %d places; want 1", h.pool.count())
	}
}

func TestTraceWhoseReaderHasGoneIsNotPurged(t *testing.T) {
	reg, err := registry.New(registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Register(registry.Spec{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	api, err := admin.New(admin.Options{Registry: reg, Upstreams: upstream.NewSet(upstream.Options{}), Pool: newPool()})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"?purge=true", "?trace=true&purge=true"} {
		func() {
			defer func() { _ = recover() }() // an answer that breaks off aborts its connection
			r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/sessions/a"+query, nil)
			api.Handler().ServeHTTP(deadConn{httptest.NewRecorder()}, r)
		}()
		if s, err := reg.Get("a"); err != nil || s.State() != registry.StateEnded {
			t.Errorf("%s: got %v; want the trace kept", query, err)
		}
	}
}
