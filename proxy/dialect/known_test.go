package dialect_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// A sender sends requests of one session, which are recorded.
type sender struct {
	tb      testing.TB
	session *registry.Session
}

func newSender(tb testing.TB) sender {
	tb.Helper()
	r, err := registry.New(registry.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	registrations, err := r.Register(registry.Spec{Upstream: "u"})
	if err != nil {
		tb.Fatal(err)
	}
	return sender{tb, registrations[0].Session}
}

// send parses and records a request with what the session knows, which must be as if
// it knew nothing, and says how much of it was known.
func (s sender) send(d dialect.Dialect, body []byte) (known int) {
	s.tb.Helper()
	request, err := d.Parse(bytes.Clone(body), s.session)
	plain, plainErr := d.Parse(body, nil)
	if !reflect.DeepEqual(err, plainErr) {
		s.tb.Fatalf("%.200q: error %v; knowing nothing %v", body, err, plainErr)
	}
	if err != nil {
		return 0
	}
	conversation, want := d.Conversation(request), d.Conversation(plain)
	if !bytes.Equal(request.Object.Src, plain.Object.Src) || !reflect.DeepEqual(request.Object.Members, plain.Object.Members) {
		s.tb.Fatalf("%.200q: parsed as %+v; knowing nothing %+v", body, request.Object.Members, plain.Object.Members)
	}
	if !reflect.DeepEqual(conversation.Prefixes, want.Prefixes) || !reflect.DeepEqual(conversation.List, want.List) {
		s.tb.Fatalf("%.200q: got %v %v; knowing nothing %v %v", body, conversation.Prefixes, conversation.List, want.Prefixes, want.List)
	}
	call, err := s.session.Admit(s.tb.Context(), registry.CallInfo{Dialect: d.Name()})
	if err != nil {
		s.tb.Fatal(err)
	}
	defer call.Close()
	var parts []registry.Part
	for _, m := range request.Object.Members {
		if m.ValueEnd-m.ValueStart >= 256 {
			parts = append(parts, registry.Part{Key: string(m.Key), Start: m.ValueStart, End: m.ValueEnd})
		}
	}
	call.Record(registry.Request{
		Body: request.Body(), Shared: parts, Prefixes: conversation.Prefixes, List: conversation.List, Known: request.Known(),
	})
	turn, err := call.Commit(registry.Response{Status: 200, Body: []byte("{}")})
	if err != nil {
		s.tb.Fatal(err)
	}
	if got := turn.Request(); !bytes.Equal(got, body) {
		s.tb.Fatalf("recorded %q; want %q", got, body)
	}
	return len(request.Known().Elements)
}

// said is a message of some length.
func said(role string, i int) string {
	return fmt.Sprintf(`{"role":%q,"content":"number %d\n%s"}`, role, i, strings.Repeat("word ", 20))
}

func TestWhatWasSentBeforeIsNotParsedAgain(t *testing.T) {
	for _, test := range []struct {
		dialect dialect.Dialect
		format  string
	}{
		{dialect.Chat{}, `{"model":"m","messages":[%s],"stream":true}`},
		{dialect.Messages{}, `{"messages": [%s], "model":"m","system":"x"}`},
		{dialect.Responses{}, `{"model":"m","input":[%s]}`},
	} {
		t.Run(test.dialect.Name(), func(t *testing.T) {
			s := newSender(t)
			var messages []string
			for i := range 20 {
				want := len(messages)
				messages = append(messages, said("user", i), said("assistant", i))
				if i == 0 {
					want = 0
				}
				if known := s.send(test.dialect, fmt.Appendf(nil, test.format, strings.Join(messages, ","))); known != want {
					t.Errorf("of %d messages %d were known; want %d", len(messages), known, want)
				}
			}
			if known := s.send(test.dialect, fmt.Appendf(nil, test.format, strings.Join(messages[:7], ","))); known != 7 {
				t.Errorf("of the beginning %d messages were known; want 7", known)
			}
			if known := s.send(test.dialect, fmt.Appendf(nil, test.format, strings.Join(messages[1:], ","))); known != 0 {
				t.Errorf("of another conversation %d messages were known", known)
			}
		})
	}
}

func TestWhatIsKnownInOneFormatIsParsedInAnother(t *testing.T) {
	s := newSender(t)
	call := `{"role":"assistant","content":[{"type":"text","text":"\u00e9\/` + strings.Repeat("a", 300) + `"}],"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}`
	body := []byte(`{"model":"m","messages":[` + call + `,` + call + `]}`)
	for range 2 { // also with escapes of which the first parsing knew that they are foreign
		for _, d := range []dialect.Dialect{dialect.Chat{}, dialect.Messages{}} {
			s.send(d, body)
		}
	}
}

func TestResponsesThatGoOnWithDifferentOnesDoNotShareFingerprints(t *testing.T) {
	s := newSender(t)
	for _, previous := range []string{"", `"previous_response_id":"resp_1",`, `"previous_response_id":"resp_2",`, ""} {
		s.send(dialect.Responses{}, []byte(`{`+previous+`"input":[`+said("user", 1)+`,`+said("user", 2)+`,`+said("user", 3)+`]}`))
	}
}

func FuzzWhatIsKnownChangesNothing(f *testing.F) {
	long := said("user", 1) + `,` + said("assistant", 2) + `,` + said("user", 3)
	f.Add(long, 100, `"}]`, false)
	f.Add(long, len(long), `,{"role":"user","content":"more"}]`, true)
	f.Add(long, len(long), `,]`, false)
	f.Add(long+`,1`, len(long)+2, `2]`, false)
	f.Add(long+`,"a"`, len(long)+4, `"b"]`, true)
	f.Add(strings.ReplaceAll(long, "word", `\u00e9`), 300, `\u00e9"}]`, true)
	f.Add(long, len(long), ` ,{"type":"reasoning"}]`, true)
	f.Fuzz(func(t *testing.T, messages string, cut int, rest string, front bool) {
		for _, d := range []dialect.Dialect{dialect.Chat{}, dialect.Messages{}, dialect.Responses{}} {
			field := "messages"
			if d.Name() == "responses" {
				field = "input"
			}
			s := newSender(t)
			first := `{"` + field + `":[` + messages + `]}`
			s.send(d, []byte(first))
			second := first[:min(max(cut, 0)+len(`{"":[`)+len(field), len(first))] + rest + `}`
			if front {
				second = `{"model":"other",` + second[1:]
			}
			s.send(d, []byte(second))
			s.send(dialect.Chat{}, []byte(first))
		}
	})
}
