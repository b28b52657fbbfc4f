package main_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var kills = flag.Int("kills", 25, "how often TestEveryTurnThatWasSeenSurvivesKills kills the daemon")

// freePort is an address that a daemon can have again and again.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// echo is a model whose answer tells which call it is of, in pieces that take a moment.
func echo(t *testing.T) *httptest.Server {
	t.Helper()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		id, stream := idOf(body), bytes.Contains(body, []byte(`"stream":true`))
		if stream {
			w.Header().Set("Content-Type", "text/event-stream")
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		for i, piece := range strings.SplitAfter(answerTo(id, stream), "\n\n") {
			if i > 0 {
				select {
				case <-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond):
				case <-r.Context().Done():
					return
				}
			}
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(model.Close)
	return model
}

func answerTo(id string, stream bool) string {
	if !stream {
		return fmt.Sprintf(`{"id":"x","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, "answer to "+id)
	}
	return fmt.Sprintf(`data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"answer"},"finish_reason":null}]}`+"\n\n"+
		`data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":%q},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n", " to "+id)
}

// idOf is which call a request is: what its last message says.
func idOf(body []byte) string {
	var request struct {
		Messages []struct{ Content string }
	}
	if json.Unmarshal(body, &request) != nil || len(request.Messages) == 0 {
		return ""
	}
	return request.Messages[len(request.Messages)-1].Content
}

// attempt is a call that was made of a session.
type attempt struct {
	body []byte
	want string
	seen bool // its client has read the end of the answer
}

// rollout is a session whose harness outlives the daemon.
type rollout struct {
	id, secret string

	mu       sync.Mutex
	attempts map[string]*attempt
	messages []string
	checked  int // turns
}

// call makes one call, which may be cut.
func (r *rollout) call(id, url string, retry bool) (status int, whole bool) {
	stream := len(id)%2 == 0
	r.mu.Lock()
	a := r.attempts[id]
	if a == nil {
		if len(r.messages) > 40 {
			r.messages = r.messages[:0]
		}
		r.messages = append(r.messages, fmt.Sprintf(`{"role":"user","content":%q}`, id))
		a = &attempt{want: answerTo(id, stream)}
		a.body = fmt.Appendf(nil, `{"model":"m","stream":%v,"messages":[%s]}`, stream, strings.Join(r.messages, ","))
		r.attempts[id] = a
	}
	r.mu.Unlock()

	request, err := http.NewRequest(http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(a.body))
	if err != nil {
		return 0, false
	}
	request.Header.Set("Authorization", "Bearer "+r.secret)
	request.Header.Set("Content-Type", "application/json")
	if retry {
		request.Header.Set("X-Stainless-Retry-Count", "1")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, false
	}
	defer func() { _ = response.Body.Close() }()
	// Who has the last event has all of it, and does not need the end that HTTP puts after it.
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusOK || string(answer) != a.want {
		return response.StatusCode, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a.seen = true
	r.messages = append(r.messages, fmt.Sprintf(`{"role":"assistant","content":%q}`, "answer to "+id))
	return response.StatusCode, true
}

// recordedTurn is a line of a trace.
type recordedTurn struct {
	Index     int
	Delivered *bool
	Request   json.RawMessage
}

// check compares the trace with what the harness knows: every answer that it has read to its end is there, once and byte for byte, and
// nothing that was not answered whole is a turn. It returns the calls that are turns without having been seen.
func (r *rollout) check(t *testing.T, d *daemon) (unseen []string) {
	t.Helper()
	status, body := d.get(t, "/sessions/"+r.id+"/trace")
	var trace struct {
		Turns       []recordedTurn
		FailedCalls []struct {
			Request json.RawMessage
			Error   struct{ Kind string }
		} `json:"failed_calls"`
	}
	if err := json.Unmarshal(body, &trace); status != http.StatusOK || err != nil {
		t.Fatalf("trace of %s: %d %s %v", r.id, status, body, err)
	}
	found := make(map[string]int)
	for i, turn := range trace.Turns {
		id := idOf(turn.Request)
		a := r.attempts[id]
		if a == nil || turn.Index != i || !bytes.Equal(turn.Request, a.body) {
			t.Fatalf("%s: turn %d, at %d, is of %q and no call that was made: %s", r.id, turn.Index, i, id, turn.Request)
		}
		if found[id]++; found[id] > 1 {
			t.Errorf("%s: %q is a turn %d times", r.id, id, found[id])
		}
		if !a.seen {
			unseen = append(unseen, id)
			if turn.Delivered != nil && *turn.Delivered {
				t.Errorf("%s: turn %d says that it was delivered, and was not", r.id, i)
			}
		}
		if i >= r.checked {
			_, request := d.get(t, fmt.Sprintf("/sessions/%s/turns/%d/request", r.id, i))
			_, response := d.get(t, fmt.Sprintf("/sessions/%s/turns/%d/response", r.id, i))
			if !bytes.Equal(request, a.body) || string(response) != a.want {
				t.Errorf("%s: turn %d is\n%s\n%s\nand should be\n%s\n%s", r.id, i, request, response, a.body, a.want)
			}
		}
	}
	r.checked = len(trace.Turns)
	for id, a := range r.attempts {
		if a.seen && found[id] != 1 {
			t.Errorf("%s: the answer to %q was seen and is a turn %d times", r.id, id, found[id])
		}
	}
	for _, f := range trace.FailedCalls {
		if a := r.attempts[idOf(f.Request)]; a == nil || a.seen {
			t.Errorf("%s: %s failed with %s, of which the answer was seen", r.id, f.Request, f.Error.Kind)
		}
	}
	return unseen
}

// work makes calls until the daemon is gone.
func (r *rollout) work(url string, next *atomic.Int64) {
	for {
		if status, _ := r.call(fmt.Sprint(next.Add(1)), url, false); status == 0 {
			return
		}
	}
}

func TestEveryTurnThatWasSeenSurvivesKills(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"MUXPROXY_UPSTREAM_URL": echo(t).URL, "MUXPROXY_UPSTREAM_USAGE": "never", "MUXPROXY_STATE_DIR": t.TempDir(),
		"MUXPROXY_LISTEN": freePort(t), "MUXPROXY_ADMIN_LISTEN": freePort(t),
	}
	var (
		next          atomic.Int64
		live          []*rollout
		ended         *rollout
		turns, unseen int
	)
	for round := range *kills + 1 {
		d := startDaemon(t, env)
		for _, r := range live {
			lost := r.check(t, d)
			turns, unseen = turns+r.checked, unseen+len(lost)
			for _, id := range lost {
				// It was committed; the client knows nothing of it, and asks again.
				if status, whole := r.call(id, d.URL, true); !whole {
					t.Errorf("the retry of %s got %d", id, status)
				}
			}
		}
		if ended != nil {
			ended.check(t, d)
			if status, _ := d.do(t, http.MethodDelete, "/sessions/"+ended.id+"?purge=true", ""); status != http.StatusOK {
				t.Errorf("purge of %s: %d", ended.id, status)
			}
			ended = nil
		}
		if round%4 == 3 { // the oldest has had its time
			ended, live = live[0], live[1:]
			if status, _ := d.do(t, http.MethodDelete, "/sessions/"+ended.id, ""); status != http.StatusOK {
				t.Errorf("end of %s: %d", ended.id, status)
			}
		}
		for len(live) < 4 {
			r := &rollout{id: fmt.Sprint("s", next.Add(1)), secret: fmt.Sprintf("secret-of-%030d", next.Add(1)), attempts: make(map[string]*attempt)}
			d.register(t, fmt.Sprintf(`{"id":%q,"secret":%q}`, r.id, r.secret))
			live = append(live, r)
		}
		if t.Failed() || round == *kills {
			d.stop(t)
			break
		}
		var work sync.WaitGroup
		for _, r := range live {
			work.Go(func() { r.work(d.URL, &next) })
			work.Go(func() { r.work(d.URL, &next) })
		}
		<-time.After(time.Duration(rand.IntN(120_000)) * time.Microsecond) // the moment is what is tested
		if err := d.process.Kill(); err != nil {
			t.Fatal(err)
		}
		work.Wait()
		<-d.exited
	}
	t.Logf("%d kills, %d calls; %d turns found, %d that no client had seen", *kills, next.Load(), turns, unseen)
}
