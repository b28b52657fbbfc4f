package admin_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/admin"
	"github.com/muxproxy/muxproxy/registry"
)

func TestServersAreListedAsTheyAre(t *testing.T) {
	h := newHarness(t)
	if got := h.want(http.StatusOK, http.MethodGet, "/servers", nil); fmt.Sprint(got) != "map[servers:[]]" {
		t.Errorf("got %v; want no server", got)
	}
	h.pool.servers = []admin.Server{
		{ID: "srv-1", State: "ready", Driver: "frp", URL: "https://a.example.net", Load: 31, Capacity: 32, CreatedAt: time.Now().Add(-time.Hour)},
		{ID: "srv-2", State: "opening", Driver: "frp", Capacity: 32, CreatedAt: time.Now(), LastError: "rate limited"},
		{ID: "srv-3", State: "ready", Driver: "none", URL: "http://127.0.0.1:8080", CreatedAt: time.Now()},
	}
	list := h.want(http.StatusOK, http.MethodGet, "/servers", nil)["servers"].([]any)
	first, second, third := list[0].(value), list[1].(value), list[2].(value)
	if first["id"] != "srv-1" || first["state"] != "ready" || first["driver"] != "frp" || first["endpoint"] != "https://a.example.net" ||
		first["load"] != 31.0 || first["capacity"] != 32.0 || first["last_error"] != nil {
		t.Errorf("got %v", first)
	}
	if age := first["age_seconds"].(float64); age < 3600 || age > 3700 {
		t.Errorf("got an age of %v s; want an hour", age)
	}
	if endpoint, there := second["endpoint"]; !there || endpoint != nil || second["last_error"] != "rate limited" {
		t.Errorf("got %v; want no endpoint yet", second)
	}
	if capacity, there := third["capacity"]; !there || capacity != nil {
		t.Errorf("got %v; want no capacity", third)
	}
}

func TestDrainedServerIsShownUntilItIsEmpty(t *testing.T) {
	h := newHarness(t)
	h.pool.servers = []admin.Server{{ID: "srv-1", State: "ready", Load: 2, Capacity: 32}, {ID: "srv-2", State: "ready", Capacity: 32}}
	got := h.want(http.StatusOK, http.MethodPost, "/servers/srv-1/drain", nil)
	if got["id"] != "srv-1" || got["state"] != "draining" || got["load"] != 2.0 {
		t.Errorf("got %v; want it to wait for its sessions", got)
	}
	if got := h.want(http.StatusOK, http.MethodPost, "/servers/srv-2/drain", nil); got["id"] != "srv-2" || got["state"] != "draining" {
		t.Errorf("got %v; want the one that has gone", got)
	}
	h.problem(http.StatusNotFound, "not_found", http.MethodPost, "/servers/srv-2/drain", nil)
	h.problem(http.StatusNotFound, "not_found", http.MethodPost, "/servers/nope/drain", nil)
	if !slices.Equal(h.pool.drained, []string{"srv-1", "srv-2"}) {
		t.Errorf("got %v drained", h.pool.drained)
	}
}

func TestWhyNoPlaceWasFoundIsToldAndCounted(t *testing.T) {
	counted := make(chan metrics.Reason, 1)
	h := newHarness(t, func(_ *registry.Options, o *admin.Options) { o.Refused = func(r metrics.Reason) { counted <- r } })
	for code, err := range map[string]error{
		"pool_full":      fmt.Errorf("%w: 2 servers of 32", admin.ErrPoolFull),
		"tunnel_backlog": admin.ErrTunnelBacklog,
		"tunnel_failed":  errors.New("credential refused"),
		"draining":       registry.ErrDraining,
	} {
		h.pool.set(func(p *pool) { p.err = err })
		for path, body := range map[string]any{"/sessions": nil, "/sessions/batch": value{"template": value{}, "count": 2}} {
			r := h.problem(http.StatusServiceUnavailable, code, http.MethodPost, path, body)
			wantRetryAfter(t, r)
			if got := <-counted; string(got) != code || !slices.Contains(metrics.Reasons(), got) {
				t.Errorf("%s counted as %q", code, got)
			}
		}
	}
	if n := h.registry.Stats().Registered; n != 0 {
		t.Errorf("got %d sessions registered; want 0", n)
	}
}

func TestBatchTakesItsPlacesFromOnePositionInTheQueue(t *testing.T) {
	for _, atomic := range []bool{true, false} {
		h := newHarness(t)
		h.register(value{"id": "there", "secret": secret})
		h.want(http.StatusCreated, http.MethodPost, "/sessions/batch",
			value{"atomic": atomic, "sessions": []value{{"id": "a"}, {"id": "there", "secret": secret}, {"id": "b"}}})
		if got := fmt.Sprint(h.pool.asked); got != "[[there] [a b]]" {
			t.Errorf("atomic %t: got %s; want a and b asked for together", atomic, got)
		}
	}
}

func TestBatchThatIsNotAtomicTakesWhatPlacesThereAre(t *testing.T) {
	h := newHarness(t)
	h.pool.room = 2
	body := value{"sessions": []value{{"id": "a"}, {"id": "b"}, {"id": "c"}}}
	for _, s := range body["sessions"].([]value) {
		s["wait"] = 0
	}
	h.problem(http.StatusServiceUnavailable, "pool_waiting", http.MethodPost, "/sessions/batch", body)
	body["atomic"] = false
	list := h.want(http.StatusCreated, http.MethodPost, "/sessions/batch", body)["sessions"].([]any)
	if list[0].(value)["id"] != "a" || list[1].(value)["id"] != "b" || at(list[2].(value), "error", "code") != "pool_waiting" {
		t.Errorf("got %v", list)
	}
	if h.pool.count() != 2 {
		t.Errorf("got %d places; want 2", h.pool.count())
	}
}

// What would be refused anyway must not open a tunnel first.
func TestNoPlaceIsAskedForWhereNoSessionMayBe(t *testing.T) {
	h := newHarness(t, func(o *registry.Options, _ *admin.Options) { o.MaxSessions = 1 })
	h.register(value{"id": "a", "secret": secret})
	h.problem(http.StatusTooManyRequests, "too_many_sessions", http.MethodPost, "/sessions", nil)
	h.want(http.StatusOK, http.MethodPost, "/sessions", value{"id": "a", "secret": secret})
	h.registry.Drain()
	h.problem(http.StatusServiceUnavailable, "draining", http.MethodPost, "/sessions", nil)
	if len(h.pool.asked) != 1 {
		t.Errorf("got %v; want only the first asked for", h.pool.asked)
	}
}

func TestSummaryShowsWhereASessionHasMoved(t *testing.T) {
	h := newHarness(t)
	h.register(value{"id": "a", "on_endpoint_loss": "keep"})
	s, err := h.registry.Get("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Move(registry.Placement{Server: "srv-9", URL: "https://new.example.net", Generation: 2}); err != nil {
		t.Fatal(err)
	}
	for call, got := range map[string]value{
		"GET":    h.want(http.StatusOK, http.MethodGet, "/sessions/a", nil),
		"rotate": h.want(http.StatusOK, http.MethodPost, "/sessions/a/rotate", nil),
		"DELETE": h.want(http.StatusOK, http.MethodDelete, "/sessions/a", nil),
	} {
		if got["server"] != "srv-9" || at(got, "endpoint", "url") != "https://new.example.net" ||
			at(got, "endpoint", "generation") != 2.0 || at(got, "endpoint", "openai_base_url") != "https://new.example.net/v1" {
			t.Errorf("%s: got %v", call, got)
		}
	}
}
