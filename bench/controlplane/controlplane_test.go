package controlplane_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
)

func TestCreationAnswersWithWhatAClientNeeds(t *testing.T) {
	c := controlplane.New(controlplane.Options{
		URL: "http://{id}.example.test:8000", FRPToken: "token", ServerHost: "127.0.0.1", ServerPort: 7001,
	})
	a := create(t, c, nil)
	if a.status != http.StatusCreated || a.Token != "token" || a.Host != "127.0.0.1" || a.Port != 7001 || a.Secret == "" {
		t.Errorf("got %+v; want 201 with the credentials", a)
	}
	if a.Hostname != a.ID+".example.test" || a.URL != "http://"+a.ID+".example.test:8000" {
		t.Errorf("got %s and %s for tunnel %s", a.Hostname, a.URL, a.ID)
	}
	got := ask(t, c, "key", http.MethodGet, "/api/v1/tunnel/"+a.ID, nil)
	if got.status != http.StatusOK || got.Secret != "" || got.Token != "" || got.Status != "PENDING" {
		t.Errorf("GET: got %+v; want it pending, without credentials", got)
	}
}

func TestNoMoreCreationsThanAllowedWithinAnyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlplane.New(controlplane.Options{})
		for i := range 512 {
			if a := create(t, c, nil); a.status != http.StatusCreated {
				t.Fatalf("creation %d: got %d; want 201", i+1, a.status)
			}
			time.Sleep(50 * time.Millisecond)
		}
		a := create(t, c, nil) // 25.6 s after the first
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") != "35" {
			t.Errorf("creation 513: got %d, Retry-After %q; want 429, 35", a.status, a.header.Get("Retry-After"))
		}
		if other := ask(t, c, "other", http.MethodPost, "/api/v1/tunnel", object{"local_port": 1}); other.status != http.StatusCreated {
			t.Errorf("another key: got %d; want 201", other.status)
		}
		time.Sleep(time.Minute - 25600*time.Millisecond)
		if a := create(t, c, nil); a.status != http.StatusCreated {
			t.Errorf("a minute after the first: got %d; want 201", a.status)
		}
		if a := create(t, c, nil); a.status != http.StatusTooManyRequests {
			t.Errorf("right after that: got %d; want 429", a.status)
		}
		if got := c.Counts(); got.Creates != 516 || got.Created != 514 || got.RateLimited != 2 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestCreationsTakeTheRecordedTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delays := []time.Duration{time.Second, 200 * time.Millisecond}
		c := controlplane.New(controlplane.Options{Delays: delays})
		for i := range 4 {
			start := time.Now()
			create(t, c, nil)
			if got, want := time.Since(start), delays[i%2]; got != want {
				t.Errorf("creation %d took %s; want %s", i, got, want)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	c := controlplane.New(controlplane.Options{Key: "key", MaxTunnels: 1})
	create(t, c, nil)
	if a := create(t, c, nil); a.status != http.StatusBadRequest || !strings.Contains(a.Detail.(string), "maximum number of") {
		t.Errorf("over the quota: got %d %v", a.status, a.Detail)
	}
	if a := ask(t, c, "wrong", http.MethodPost, "/api/v1/tunnel", object{"local_port": 1}); a.status != http.StatusUnauthorized {
		t.Errorf("wrong key: got %d; want 401", a.status)
	}
	if a := ask(t, c, "key", http.MethodPost, "/api/v1/tunnel", object{}); a.status != http.StatusUnprocessableEntity {
		t.Errorf("no port: got %d; want 422", a.status)
	}
	if a := ask(t, c, "key", http.MethodGet, "/api/v1/tunnel/t-none", nil); a.status != http.StatusNotFound {
		t.Errorf("unknown: got %d; want 404", a.status)
	}
}

func TestDeletedTunnelsStayReadable(t *testing.T) {
	c := controlplane.New(controlplane.Options{})
	id := create(t, c, nil).ID
	path := "/api/v1/tunnel/" + id
	if a := ask(t, c, "key", http.MethodDelete, path, nil); a.status != http.StatusNoContent {
		t.Errorf("DELETE: got %d; want 204", a.status)
	}
	if a := ask(t, c, "key", http.MethodDelete, path, nil); a.status != http.StatusNotFound {
		t.Errorf("second DELETE: got %d; want 404", a.status)
	}
	if a := ask(t, c, "key", http.MethodGet, path, nil); a.status != http.StatusOK || a.Status != "terminated" {
		t.Errorf("GET: got %d %q; want 200 terminated", a.status, a.Status)
	}
	if a := plugin(t, c, controlplane.Login, object{"user": id}); !a.Reject || a.RejectReason != "tunnel is inactive" {
		t.Errorf("login: got %+v; want it refused", a)
	}
}

func TestTunnelsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controlplane.New(controlplane.Options{Lifetime: 3 * time.Hour})
		connected, never := create(t, c, nil), create(t, c, nil)
		connect(t, c, connected, "run")
		status := func(a answer) string { return ask(t, c, "key", http.MethodGet, "/api/v1/tunnel/"+a.ID, nil).Status }
		time.Sleep(time.Hour + time.Second)
		if got := status(never); got != "EXPIRED" {
			t.Errorf("away for an hour: got %s; want EXPIRED", got)
		}
		if got := status(connected); got != "CONNECTED" {
			t.Errorf("connected: got %s; want CONNECTED", got)
		}
		time.Sleep(2 * time.Hour)
		if got := status(connected); got != "EXPIRED" {
			t.Errorf("after its lifetime: got %s; want EXPIRED", got)
		}
		of := object{"user": object{"user": connected.ID, "run_id": "run"}}
		if a := plugin(t, c, controlplane.NewWorkConn, of); a.Reject {
			t.Error("work connection of an expired tunnel refused; it is a zombie until it pings")
		}
		if a := plugin(t, c, controlplane.Ping, of); !a.Reject {
			t.Error("ping of an expired tunnel let through")
		}
	})
}

// connect does what frps asks when a client comes.
func connect(t *testing.T, c *controlplane.ControlPlane, of answer, run string) {
	t.Helper()
	metas := object{"binding_secret": of.Secret}
	if a := plugin(t, c, controlplane.Login, object{"user": of.ID, "metas": metas}); a.Reject {
		t.Fatalf("login refused: %s", a.RejectReason)
	}
	if a := plugin(t, c, controlplane.NewProxy, object{
		"user": object{"user": of.ID, "metas": metas, "run_id": run}, "proxy_name": of.ID + "." + of.ID,
		"proxy_type": "http", "subdomain": of.ID,
	}); a.Reject || !a.Unchange {
		t.Fatalf("proxy refused: %s", a.RejectReason)
	}
}

func TestFrpsIsToldWhoMayServeWhat(t *testing.T) {
	c := controlplane.New(controlplane.Options{})
	a := create(t, c, nil)
	refused := func(op controlplane.Op, content object) string {
		t.Helper()
		return plugin(t, c, op, content).RejectReason
	}
	if got := refused(controlplane.Login, object{"user": a.ID, "metas": object{"binding_secret": "x"}}); got != "invalid binding secret" {
		t.Errorf("wrong secret: got %q", got)
	}
	if got := refused(controlplane.Login, object{"user": "t-none"}); got != "tunnel not registered" {
		t.Errorf("unknown tunnel: got %q", got)
	}
	if got := refused(controlplane.NewProxy, object{
		"user": object{"user": a.ID}, "proxy_name": a.ID + "." + a.ID, "proxy_type": "http", "subdomain": "other",
	}); got == "" {
		t.Error("serving another's host name was let through")
	}
	connect(t, c, a, "one")
	connect(t, c, a, "two") // before frps notices that the first is gone
	plugin(t, c, controlplane.CloseProxy, object{"user": object{"user": a.ID, "run_id": "one"}})
	if got := c.Tunnels()[0].Status; got != controlplane.Connected {
		t.Errorf("after the old session's end: got %s; want CONNECTED", got)
	}
	plugin(t, c, controlplane.CloseProxy, object{"user": object{"user": a.ID, "run_id": "two"}})
	if got := c.Tunnels()[0].Status; got != controlplane.Disconnected {
		t.Errorf("after the session's end: got %s; want DISCONNECTED", got)
	}
}

func TestListsAreFilteredAndPaged(t *testing.T) {
	c := controlplane.New(controlplane.Options{})
	for range 3 {
		create(t, c, object{"labels": []string{"a", "b"}})
	}
	create(t, c, object{"labels": []string{"a"}})
	create(t, c, object{"labels": []string{"b"}, "teamId": "team"})
	list := func(query string) answer { return ask(t, c, "key", http.MethodGet, "/api/v1/tunnel?"+query, nil) }
	if got := list("labels=a&labels=b&perPage=2"); len(got.Tunnels) != 2 || !got.HasNext || got.TunnelsListed != 3 {
		t.Errorf("first page: got %+v", got)
	}
	if got := list("labels=a&labels=b&perPage=2&page=2"); len(got.Tunnels) != 1 || got.HasNext {
		t.Errorf("last page: got %+v", got)
	}
	if got := list("teamId=team"); len(got.Tunnels) != 1 {
		t.Errorf("team: got %+v", got)
	}
	all := list("")
	ids := []string{all.Tunnels[0].ID, "t-none"}
	if got := ask(t, c, "key", http.MethodDelete, "/api/v1/tunnel", object{"tunnel_ids": ids}); len(got.Succeeded) != 1 || len(got.Failed) != 1 {
		t.Errorf("bulk delete by id: got %+v", got)
	}
	if got := ask(t, c, "key", http.MethodDelete, "/api/v1/tunnel", object{"labels": []string{"b"}}); len(got.Succeeded) != 4 {
		t.Errorf("bulk delete by label: got %+v", got)
	}
	if got := c.Live(); got != 0 {
		t.Errorf("%d tunnels left; want none", got)
	}
}

func TestFaultsReplaceAnswers(t *testing.T) {
	c := controlplane.New(controlplane.Options{})
	server := httptest.NewServer(c)
	defer server.Close()
	client := server.Client()
	defer client.CloseIdleConnections()
	post := func() (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/api/v1/tunnel", strings.NewReader(`{"local_port":1}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer key")
		a, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer a.Body.Close()
		body, err := io.ReadAll(a.Body)
		return a.StatusCode, string(body), err
	}
	c.Fail(controlplane.Create, controlplane.Fault{Status: 500, Body: "<html>", Times: 1})
	if status, body, err := post(); status != 500 || body != "<html>" || err != nil {
		t.Errorf("garbage: got %d %q %v", status, body, err)
	}
	if status, _, err := post(); status != http.StatusCreated || err != nil {
		t.Errorf("after the last time: got %d %v; want 201", status, err)
	}
	c.Fail(controlplane.Create, controlplane.Fault{Late: true})
	if _, _, err := post(); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: got %v; want EOF", err)
	}
	if got := c.Counts().Created; got != 2 {
		t.Errorf("late fault: got %d tunnels; want 2", got)
	}
	c.Fail(controlplane.Create, controlplane.Fault{Hang: true})
	hung := make(chan error)
	go func() {
		_, _, err := post()
		hung <- err
	}()
	for c.Counts().Creates < 4 {
		time.Sleep(time.Millisecond)
	}
	c.Mend()
	if err := <-hung; !errors.Is(err, io.EOF) {
		t.Errorf("mended hang: got %v; want EOF", err)
	}
}
