package registry_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/muxproxy/muxproxy/registry"
)

func TestTurnsOfAGrowingConversationTakeLinearMemory(t *testing.T) {
	const turns, text = 200, 1000
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{ID: "a"})
	c := &conversation{}
	c.say("system", strings.Repeat("s", 4000))
	var sent, fresh int
	for i := range turns {
		c.say("user", fmt.Sprint(i, strings.Repeat("u", text)))
		sent += len(c.request().Body)
		c.turn(t, s, fmt.Sprint(i, strings.Repeat("a", text)), nil)
	}
	fresh = len(c.request().Body) + turns*text // responses are kept beside the requests
	got := r.Stats().TraceBytes
	if got > 2*int64(fresh) {
		t.Errorf("%d turns take %d bytes; want at most twice the %d new ones (%d were sent)", turns, got, fresh, sent)
	}
	if _, err := r.End(t.Context(), "a", registry.EndOptions{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if got := r.Stats().TraceBytes; got != 0 {
		t.Errorf("%d bytes are left after the purge", got)
	}
}

func TestSubAgentsThatTakeTurnsShareWithThemselves(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	agents := make([]*conversation, 6)
	fresh := 0
	for i := range agents {
		agents[i] = &conversation{}
		agents[i].say("system", fmt.Sprint(i, strings.Repeat(fmt.Sprintf("%c", 'a'+i), 4000)))
	}
	for turn := range 50 {
		for i, agent := range agents {
			agent.say("user", fmt.Sprint(turn, i, strings.Repeat("u", 1000)))
			agent.turn(t, s, fmt.Sprint(turn, i, strings.Repeat("a", 1000)), nil)
		}
	}
	for _, agent := range agents {
		fresh += len(agent.request().Body) + 50*1000
	}
	if got := r.Stats().TraceBytes; got > 2*int64(fresh) {
		t.Errorf("trace takes %d bytes; want at most twice the %d new ones", got, fresh)
	}
}

func TestThousandsOfTurnsAreGivenBack(t *testing.T) {
	const turns = 3_000
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	body := []byte(`{"messages":["` + strings.Repeat("task", 50) + `"]}`)
	sizes := make([]int, turns)
	for i := range turns {
		body = append(body[:len(body)-2], fmt.Sprintf(`,"%d"]}`, i)...)
		sizes[i] = len(body)
		call := admit(t, s)
		call.Record(registry.Request{Body: body, Shared: []registry.Part{{Key: "messages", Start: 12, End: len(body) - 1}}})
		commit(t, call, registry.Response{})
	}
	for _, i := range []int{0, 1, turns / 2, turns - 1} {
		turn, err := s.Turn(i)
		if err != nil {
			t.Fatal(err)
		}
		want := append(slices.Clone(body[:sizes[i]-2]), "]}"...)
		if !bytes.Equal(turn.Request(), want) {
			t.Errorf("turn %d is not given back as it was sent", i)
		}
	}
}

// script makes requests that resemble each other out of a fuzzer's bytes: bodies that grow, are cut, changed in the middle, begun anew.
type script struct {
	*rand.Rand
	body []byte
	past [][]byte
}

func (s *script) next() registry.Request {
	switch s.IntN(8) {
	case 0: // another conversation
		s.body = s.noise(1 + s.IntN(2000))
	case 1: // back to an earlier one
		if len(s.past) > 0 {
			s.body = slices.Clone(s.past[s.IntN(len(s.past))])
		}
	case 2: // a cut
		s.body = s.body[:s.IntN(len(s.body)+1)]
	case 3: // a change in the middle
		at := s.IntN(len(s.body) + 1)
		s.body = slices.Insert(s.body, at, s.noise(s.IntN(200))...)
	case 4: // something left out
		if len(s.body) > 10 {
			from := s.IntN(len(s.body))
			s.body = slices.Delete(s.body, from, min(len(s.body), from+s.IntN(200)))
		}
	case 5: // the very same again
	default: // growth before the last bytes
		at := max(0, len(s.body)-s.IntN(4))
		s.body = slices.Insert(s.body, at, s.noise(s.IntN(500))...)
	}
	s.past = append(s.past, slices.Clone(s.body))
	return registry.Request{Body: slices.Clone(s.body), Shared: s.spans()}
}

func (s *script) spans() []registry.Part {
	var spans []registry.Part
	for end := 0; len(spans) < 3; {
		start := end + s.IntN(60)
		end = start + s.IntN(len(s.body)+100)
		spans = append(spans, registry.Part{Key: []string{"messages", "tools", "system"}[s.IntN(3)], Start: start, End: end})
	}
	return spans
}

func (s *script) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "ab"[s.IntN(2)]
	}
	return b
}

func FuzzRequestsAreGivenBackByteForByte(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, seed*31, 60)
	}
	f.Fuzz(func(t *testing.T, seed1, seed2 uint64, n int) {
		r := newRegistry(t, registry.Options{})
		s, _ := register(t, r, registry.Spec{ID: "a"})
		script := &script{Rand: rand.New(rand.NewPCG(seed1, seed2))}
		var want, failed [][]byte
		for range min(n, 300) {
			call := admit(t, s)
			request := script.next()
			body := slices.Clone(request.Body)
			call.Record(request)
			clear(request.Body)
			if script.IntN(4) == 0 {
				call.Fail(registry.Failure{Kind: registry.FailureTimeout})
				call.Close()
				failed = append(failed, body)
				continue
			}
			commit(t, call, registry.Response{})
			want = append(want, body)
		}
		trace := traceOf(t, s)
		for i, turn := range trace.Turns {
			if got := turn.Request(); !bytes.Equal(got, want[i]) || turn.RequestSize() != len(want[i]) {
				t.Fatalf("turn %d: got %q; want %q", i, got, want[i])
			}
		}
		if len(failed) <= 200 {
			for i, call := range trace.FailedCalls {
				if got := call.Request(); !bytes.Equal(got, failed[i]) {
					t.Fatalf("failed call %d: got %q; want %q", i, got, failed[i])
				}
			}
		}
		if _, err := r.End(t.Context(), "a", registry.EndOptions{Purge: true}); err != nil {
			t.Fatal(err)
		}
		if got := r.Stats().TraceBytes; got != 0 {
			t.Errorf("%d bytes are left after the purge", got)
		}
	})
}

// However requests are made of each other, what is known of one is what it begins with
// like one of the latest.
func TestKnownIsWhatTheLatestRequestsBeginWith(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	random := rand.New(rand.NewPCG(1, 2))
	first := make([]string, 10)
	for i := range first {
		first[i] = fmt.Sprintf(`{"text":"%020d"}`, i)
	}
	var latest [][]string
	for step := range 3000 {
		messages := first
		if len(latest) > 0 {
			messages = slices.Clone(latest[random.IntN(len(latest))])
		}
		messages[random.IntN(len(messages))] = fmt.Sprintf(`{"text":"%020d"}`, step)
		text := "[" + strings.Join(messages, ",") + "]"

		common := 0
		for _, messages := range latest {
			other := "[" + strings.Join(messages, ",") + "]"
			n := 0
			for n < min(len(text), len(other)) && text[n] == other[n] {
				n++
			}
			common = max(common, n)
		}
		list, whole := registry.List{Field: "messages", Seed: 1}, 0
		for i := range messages {
			end := len("[" + strings.Join(messages[:i+1], ","))
			list.Elements = append(list.Elements, registry.Element{End: end, Prefix: xxh3.HashString(text[:end])})
			if end <= common {
				whole = i + 1
			}
		}
		known := s.Known("messages", []byte(text))
		if !slices.Equal(known.Elements, list.Elements[:whole]) {
			t.Fatalf("step %d: %d elements are known; want %d", step, len(known.Elements), whole)
		}
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(text), Shared: []registry.Part{{Key: "messages", End: len(text)}}, List: list, Known: known})
		commit(t, call, registry.Response{Status: 200})
		latest = append(latest, messages)
		latest = latest[max(0, len(latest)-8):]
	}
}

func TestElementsOfAGrowingListAreKeptOnce(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	const message = `{"role":"user","content":"0123456789012345678901234567890123456789"}`
	text, list := "[", registry.List{Field: "messages", Seed: 1}
	var least int64
	for i := range 200 {
		if i > 0 {
			text += ","
		}
		text += message
		known := s.Known("messages", []byte(text))
		if len(known.Elements) != i && i > 3 {
			t.Fatalf("of %d elements %d are known", i+1, len(known.Elements))
		}
		list.Elements = append(slices.Clone(list.Elements), registry.Element{End: len(text), Prefix: uint64(i + 1)})
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(text + "]"), Shared: []registry.Part{{Key: "messages", End: len(text) + 1}}, List: list, Known: known})
		commit(t, call, registry.Response{Status: 200})
		before := least
		least = r.Stats().TraceBytes
		if grown := least - before; i > 20 && grown > 2000 {
			t.Fatalf("turn %d takes %d bytes", i, grown)
		}
	}
}

// A request that differs from the one before it where that differs from its own base
// does not need the one before it: a chain of them would be walked with every request,
// and keep all of them.
func TestChangesOfTheSamePlaceDoNotMakeAChain(t *testing.T) {
	r := newRegistry(t, registry.Options{})
	s, _ := register(t, r, registry.Spec{})
	var bytes int64
	for i := range 2000 { // of failed calls two hundred are kept
		body := fmt.Sprintf(`[{"role":"user","content":%q},{"role":"user","content":"call %06d"}]`, strings.Repeat("x", 2000), i)
		call := admit(t, s)
		call.Record(registry.Request{Body: []byte(body), Shared: []registry.Part{{Key: "messages", End: len(body)}}})
		call.Fail(registry.Failure{Kind: registry.FailureUpstreamError})
		call.Close()
		if i == 400 {
			bytes = r.Stats().TraceBytes
		}
	}
	if got := r.Stats().TraceBytes; got > bytes+bytes/10 {
		t.Errorf("%d bytes after 2000 failed calls, %d after 400", got, bytes)
	}
}
