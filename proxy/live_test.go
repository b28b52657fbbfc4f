package proxy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// bubble runs a test of the whole stack in memory and in virtual time.
func bubble(t *testing.T, test func(s *stack), change ...func(*settings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newStack(t, append(change, inMemory)...)) })
}

// live is an answer that is read as it arrives, by a client that may leave.
type live struct {
	*http.Response
	t      *testing.T
	leave  context.CancelFunc
	reader *bufio.Reader
}

// open makes a chat call and returns when its header is there.
func (r *rollout) open(model, extra string) *live {
	r.t.Helper()
	return r.openRequest(r.request(http.MethodPost, chatPath, chatBody(model, extra)))
}

func (r *rollout) openRequest(req *http.Request) *live {
	r.t.Helper()
	req, leave := abandonable(req)
	res, err := r.client.Do(req) //nolint:bodyclose // it is closed with the test
	if err != nil {
		leave()
		r.t.Fatal(err)
	}
	l := &live{res, r.t, leave, bufio.NewReaderSize(res.Body, 64<<10)}
	r.t.Cleanup(l.close)
	return l
}

func (l *live) close() {
	l.leave()
	l.Body.Close()
}

// line reads one line.
func (l *live) line() string {
	l.t.Helper()
	line, err := l.reader.ReadString('\n')
	if err != nil {
		l.t.Fatalf("read a line: %v after %q", err, line)
	}
	return line
}

// event reads up to and with the next blank line.
func (l *live) event() string {
	l.t.Helper()
	var event strings.Builder
	for {
		line := l.line()
		event.WriteString(line)
		if strings.TrimRight(line, "\r\n") == "" {
			return event.String()
		}
	}
}

// rest reads to the end.
func (l *live) rest() (string, error) {
	b, err := io.ReadAll(l.reader)
	return string(b), err
}

// logged is what a log line of a request says.
type logged struct {
	Outcome, End, Route, Error, Replay string
	Status                             int
	Stream                             bool
	Overhead                           float64 `json:"overhead_seconds"`
}

// logged gives the log lines of requests, oldest first.
func (s *stack) logged() []logged {
	s.t.Helper()
	var all []logged
	for line := range strings.Lines(s.logs.String()) {
		var l logged
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Fatalf("log line %q: %v", line, err)
		}
		all = append(all, l)
	}
	return all
}

// wantLogged checks how the newest request is logged; "" and 0 are not checked.
// It is for bubbles, where it waits for the log line.
func (s *stack) wantLogged(want logged) {
	s.t.Helper()
	synctest.Wait()
	all := s.logged()
	if len(all) == 0 {
		s.t.Error("no request was logged")
		return
	}
	got := all[len(all)-1]
	for _, field := range []struct{ name, got, want string }{
		{"outcome", got.Outcome, want.Outcome},
		{"end", got.End, want.End},
		{"route", got.Route, want.Route},
		{"replay", got.Replay, want.Replay},
	} {
		if field.want != "" && field.got != field.want {
			s.t.Errorf("logged %s is %q, want %q (error %q)", field.name, field.got, field.want, got.Error)
		}
	}
	if want.Status != 0 && got.Status != want.Status {
		s.t.Errorf("logged status is %d, want %d (error %q)", got.Status, want.Status, got.Error)
	}
}

// outcomes counts the requests by their outcome, as /metrics shows them.
func (s *stack) outcomes() map[string]int {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "muxproxy_requests_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if n := int(metric.GetCounter().GetValue()); label.GetName() == "outcome" && n > 0 {
					counts[label.GetValue()] += n
				}
			}
		}
	}
	return counts
}

// wantIdle checks that no call holds a place anywhere. It is for bubbles.
func (s *stack) wantIdle() {
	s.t.Helper()
	synctest.Wait()
	if n := s.registry.Stats().Inflight; n != 0 {
		s.t.Errorf("%d calls are in flight in the registry, want 0", n)
	}
	for _, u := range s.upstreams.List() {
		for _, replica := range u.Replicas {
			if replica.Inflight != 0 {
				s.t.Errorf("%d calls are in flight on replica %s, want 0", replica.Inflight, replica.Name)
			}
		}
	}
}
