package proxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/bench/scripted"
	"github.com/muxproxy/muxproxy/registry"
)

// said answers with this text.
func said(text string, stream bool) scripted.Script {
	if !stream {
		return scripted.JSON(fmt.Appendf(nil, `{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":`+
			`{"role":"assistant","content":%q,"refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}`, text))
	}
	return scripted.SSE(fmt.Appendf(nil, `data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":%q},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c","object":"chat.completion.chunk","model":"m","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}}

data: [DONE]

`, text))
}

type userQuestion struct {
	Session  struct{ ID string }
	Turn     int
	Messages []map[string]any
}

// A play is a session with a simulated user, whose model says its turn's number.
type play struct {
	*rollout
	asked []userQuestion
	// answer is what the user answers, by default a message until three turns
	// were made.
	answer http.HandlerFunc
	// model is what the model answers to its nth call, by default its text.
	model func(n int, stream bool) scripted.Script
	calls int
}

func inPlay(t *testing.T, spec registry.Spec, test func(p *play), change ...func(*settings)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &play{model: func(n int, stream bool) scripted.Script { return said(fmt.Sprintf("turn %d", n), stream) }}
		p.answer = func(w http.ResponseWriter, r *http.Request) {
			var q userQuestion
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				t.Error(err)
			}
			p.asked = append(p.asked, q)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("and after %d?", len(q.Messages))}},
				"done":     len(q.Messages) == 6,
			})
		}
		s := newStack(t, append(change, inMemory, hooked(t, func(w http.ResponseWriter, r *http.Request) { p.answer(w, r) }))...)
		s.model.Func("m", func(r *scripted.Request) scripted.Script {
			p.calls++
			return p.model(p.calls-1, strings.Contains(string(r.Body), streaming))
		})
		spec.User = &registry.Hook{URL: "http://localhost/user", Timeout: 30 * time.Second}
		p.rollout = s.register(spec)
		test(p)
		p.settle()
		p.wantIdle()
	})
}

// text is what the harness reads, of a stream too.
func text(t *testing.T, a answer) string {
	t.Helper()
	var out strings.Builder
	body := strings.ReplaceAll(string(a.body), keepaliveLine, "")
	for line := range strings.Lines(body) {
		data := strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		var chunk struct {
			Choices []struct{ Message, Delta struct{ Content string } }
		}
		if json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			out.WriteString(chunk.Choices[0].Message.Content + chunk.Choices[0].Delta.Content)
		}
	}
	return out.String()
}

func TestSimulatedUserTalksInsideOneRequestOfTheHarness(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		inPlay(t, registry.Spec{ID: "a", Metadata: json.RawMessage(`{"row":42}`)}, func(p *play) {
			got := p.chat("m", extra)
			if got.StatusCode != http.StatusOK || got.err != nil || text(p.t, got) != "turn 2" {
				p.t.Errorf("got %d, %v, %s; want the last turn alone", got.StatusCode, got.err, got.body)
			}
			if strings.Contains(string(got.body), "usage") != (extra == "") {
				p.t.Errorf("got %s; want it as the harness asked for it", got.body)
			}
			p.settle()
			p.wantTurns(3)
			for i, turn := range p.turns() {
				if i > 0 && (turn.Parent == nil || *turn.Parent != i-1) {
					p.t.Errorf("turn %d: got parent %v; want the turn before", i, turn.Parent)
				}
				if d := turn.Delivered(); d == nil || !*d {
					p.t.Errorf("turn %d: want it delivered, to the user or to the harness", i)
				}
			}
			if want := `[{"role":"user","content":"hi"},{"role":"assistant","content":"turn 0"},{"content":"and after 2?","role":"user"},` +
				`{"role":"assistant","content":"turn 1"},{"content":"and after 4?","role":"user"}]`; !strings.Contains(string(p.turns()[2].Request()), want) {
				p.t.Errorf("the last request is\n%s\nwant it to have\n%s", p.turns()[2].Request(), want)
			}
			if len(p.asked) != 3 || p.asked[2].Session.ID != "a" || len(p.asked[2].Messages) != 6 || p.asked[2].Messages[5]["content"] != "turn 2" {
				p.t.Errorf("the user was asked %+v", p.asked)
			}
			if got := p.session.Summary(); got.StopCondition != registry.ConditionUserCompleted || got.Usage.OutputTokens != 6 {
				p.t.Errorf("got %+v; want it completed, with the tokens of three turns", got)
			}
			p.chat("m", extra).wantError(p.t, http.StatusBadRequest, "session_stopped")
		})
	}
}

// A leaver is a client that goes once it has read.
type leaver struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (l leaver) Write(b []byte) (int, error) {
	defer l.leave()
	return l.ResponseRecorder.Write(b)
}

func TestWhoGoesWithTheDialoguesAnswerHasGotIt(t *testing.T) {
	inPlay(t, registry.Spec{}, func(p *play) {
		ctx, leave := context.WithCancel(p.t.Context())
		defer leave()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions",
			strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
		r.Header.Set("Authorization", "Bearer "+p.secret)
		p.proxy.Handler("nonce-2").ServeHTTP(leaver{httptest.NewRecorder(), leave}, r)
		p.wantTurns(3)
		if d := p.turns()[2].Delivered(); d == nil || !*d {
			p.t.Error("the last turn was read, and is not delivered")
		}
	})
}

func TestTurnThatCallsToolsIsTheHarnessesAtOnce(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		inPlay(t, registry.Spec{}, func(p *play) {
			p.model = func(_ int, stream bool) scripted.Script {
				if stream {
					return scripted.SSE(scripted.Fixture("openai/tools-usage.sse"))
				}
				return scripted.JSON(scripted.Fixture("openai/tools.json"))
			}
			got := p.chat("m", extra)
			if got.StatusCode != http.StatusOK || !strings.Contains(string(got.body), "tool_calls") || len(p.asked) != 0 {
				p.t.Errorf("got %d %s, and %d questions to the user; want the tool calls and none", got.StatusCode, got.body, len(p.asked))
			}
			p.settle()
			p.wantTurns(1)
		})
	}
}

func TestLimitInTheMiddleGivesTheHarnessTheLastTurn(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		inPlay(t, registry.Spec{Limits: registry.Limits{MaxTurns: new(int64(2))}}, func(p *play) {
			got := p.chat("m", extra)
			if got.StatusCode != http.StatusOK || got.err != nil || text(p.t, got) != "turn 1" {
				p.t.Errorf("got %d, %v, %s; want turn 1", got.StatusCode, got.err, got.body)
			}
			p.settle()
			p.wantTurns(2)
			if got := p.session.Summary().StopCondition; got != registry.LimitTurns {
				p.t.Errorf("got %q; want max_turns", got)
			}
		})
	}
}

func TestDialogueThatFailsInTheMiddleIsResumedByItsRetry(t *testing.T) {
	for _, extra := range []string{"", streaming} {
		t.Run("the user"+extra, func(t *testing.T) {
			inPlay(t, registry.Spec{}, func(p *play) {
				answers := p.answer
				p.answer = func(w http.ResponseWriter, r *http.Request) {
					if len(p.asked) == 1 {
						w.WriteHeader(http.StatusInternalServerError)
						return
					}
					answers(w, r)
				}
				p.retry(0, "m", extra).wantError(p.t, http.StatusBadGateway, "hook_failed")
				p.wantTurns(2)
				p.answer = answers
				if got := p.retry(1, "m", extra); got.StatusCode != http.StatusOK || text(p.t, got) != "turn 2" {
					p.t.Errorf("retry: got %d %s; want the last turn", got.StatusCode, got.body)
				}
				p.settle()
				p.wantTurns(3)
				if p.calls != 3 {
					p.t.Errorf("got %d model calls; want 3: none is made again", p.calls)
				}
			})
		})
		t.Run("the model"+extra, func(t *testing.T) {
			inPlay(t, registry.Spec{}, func(p *play) {
				answers := p.model
				p.model = func(n int, stream bool) scripted.Script {
					if n == 1 {
						return scripted.Script{Status: http.StatusInternalServerError, Body: []byte(`{"error":{"message":"out of memory"}}`)}
					}
					return answers(n, stream)
				}
				if got := p.retry(0, "m", extra); got.StatusCode != http.StatusInternalServerError || !strings.Contains(string(got.body), "out of memory") {
					p.t.Errorf("got %d %s; want what the upstream said", got.StatusCode, got.body)
				}
				p.settle()
				p.wantTurns(1, registry.FailureUpstreamError)
				if got := p.retry(1, "m", extra); got.StatusCode != http.StatusOK || text(p.t, got) != "turn 3" {
					p.t.Errorf("retry: got %d %s; want the last turn", got.StatusCode, got.body)
				}
				p.settle()
				p.wantTurns(3, registry.FailureUpstreamError)
			})
		})
	}
}

func TestDialogueThatIsDoneIsReplayedToItsRetry(t *testing.T) {
	inPlay(t, registry.Spec{}, func(p *play) {
		first := p.retry(0, "m", streaming)
		again := p.retry(1, "m", streaming)
		if string(first.body) != string(again.body) || first.StatusCode != http.StatusOK || p.calls != 3 || len(p.asked) != 3 {
			p.t.Errorf("got %d\n%s\nthen %d\n%s\nwith %d model calls", first.StatusCode, first.body, again.StatusCode, again.body, p.calls)
		}
	})
}

func TestHeldStreamIsKeptAliveAndBreaksWhenItsDialogueFails(t *testing.T) {
	slow := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Second)
		w.WriteHeader(http.StatusInternalServerError)
	}
	inPlay(t, registry.Spec{}, func(p *play) {
		answers := p.answer
		p.answer = func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10500 * time.Millisecond) // never with a keepalive
			answers(w, r)
		}
		got := p.chat("m", streaming)
		if strings.Count(string(got.body), keepaliveLine) != 10 || got.err != nil || text(p.t, got) != "turn 2" {
			p.t.Errorf("got %v\n%s\nwant ten keepalives, then the last turn", got.err, got.body)
		}
	})
	inPlay(t, registry.Spec{}, func(p *play) {
		p.answer = slow
		got := p.chat("m", streaming)
		if got.StatusCode != http.StatusOK || got.err == nil || !strings.Contains(string(got.body), "hook_failed") || strings.Contains(string(got.body), "[DONE]") {
			p.t.Errorf("got %d, %v\n%s\nwant an error event and a broken connection", got.StatusCode, got.err, got.body)
		}
	})
	inPlay(t, registry.Spec{}, func(p *play) {
		p.answer = slow
		p.chat("m", "").wantError(p.t, http.StatusBadGateway, "hook_failed")
	})
}

func TestSimulatedUserThatSaysNothingOfUseFails(t *testing.T) {
	for _, body := range []string{`{}`, `{"messages":[]}`, `{"messages":[{"content":"x"}]}`, `{"messages":"x"}`, `[]`, `{"messages":["x"]}`} {
		inPlay(t, registry.Spec{}, func(p *play) {
			p.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
			p.chat("m", "").wantError(p.t, http.StatusBadGateway, "hook_failed")
			p.wantTurns(1)
		})
	}
	inPlay(t, registry.Spec{}, func(p *play) {
		p.chat("m", `"n":2`).wantError(p.t, http.StatusBadRequest, "invalid_request")
		p.wantTurns(0)
	})
}

func TestClientThatLeavesADialogueEndsIt(t *testing.T) {
	inPlay(t, registry.Spec{}, func(p *play) {
		p.answer = func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		req, leave := abandonable(p.request(http.MethodPost, chatPath, chatBody("m", "")))
		gone := p.leaveOnce(req, leave)
		gone()
		synctest.Wait()
		p.wantTurns(1)
	})
}

func TestSessionThatEndsWhileItsUserThinksEndsTheCall(t *testing.T) {
	inPlay(t, registry.Spec{ID: "a"}, func(p *play) {
		p.answer = func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
		time.AfterFunc(time.Second, func() { _, _ = p.registry.End(p.t.Context(), "a", registry.EndOptions{}) })
		p.chat("m", "").wantError(p.t, http.StatusGone, "session_ended")
	})
}

// The lease must not run out and the session not be sealed before the answer is
// delivered; nor must the dialogue wait for a place that it has itself.
func TestDialogueIsOneCallInFlightToItsEnd(t *testing.T) {
	inPlay(t, registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}}, func(p *play) {
		answers := p.answer
		p.answer = func(w http.ResponseWriter, r *http.Request) {
			if n := p.session.Summary().Inflight; n != 1 {
				p.t.Errorf("while the user thinks %d calls are in flight; want 1", n)
			}
			answers(w, r)
		}
		if got := p.chat("m", ""); got.StatusCode != http.StatusOK || text(p.t, got) != "turn 2" {
			p.t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	})
}
