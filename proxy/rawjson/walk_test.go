package rawjson_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

func TestKindIsToldByTheFirstByte(t *testing.T) {
	for raw, want := range map[string]byte{
		`{}`: '{', ` []`: '[', `"a"`: '"', `true`: 't', `false`: 'f', `null`: 'n',
		`0`: '0', `-1`: '0', `9.5`: '0', ``: 0, ` `: 0, `x`: 0, `]`: 0,
	} {
		if got := rawjson.Kind([]byte(raw)); got != want {
			t.Errorf("Kind(%q) = %q; want %q", raw, got, want)
		}
	}
}

func TestElementsAreTheRawValuesOfAnArray(t *testing.T) {
	for _, tt := range []struct {
		text string
		want []string
	}{
		{`[]`, nil},
		{` [ ] `, nil},
		{`[1]`, []string{"1"}},
		{"[ 1 ,\t\"a,]\" , [2,[3]],{\"b\":[4]}, null ]", []string{"1", `"a,]"`, "[2,[3]]", `{"b":[4]}`, "null"}},
		{`{"a":1}`, nil},
		{`"[1]"`, nil},
		{``, nil},
	} {
		var got []string
		for raw := range rawjson.Elements([]byte(tt.text)) {
			got = append(got, string(raw))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("Elements(%s) = %q; want %q", tt.text, got, tt.want)
		}
	}
}

func TestFieldsAreInOrderWithDuplicates(t *testing.T) {
	var got []string
	for k, v := range rawjson.Fields([]byte(` { "b" : 1 , "\u0061": {"c":2},"b":"x" } `)) {
		got = append(got, fmt.Sprintf("%s=%s", k, v))
	}
	if want := []string{"b=1", `a={"c":2}`, `b="x"`}; !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	for _, text := range []string{`{}`, `[1]`, `"{}"`, ``} {
		for k, v := range rawjson.Fields([]byte(text)) {
			t.Errorf("Fields(%s) yields %s=%s", text, k, v)
		}
	}
}

func TestIterationStopsWhenAsked(t *testing.T) {
	for raw := range rawjson.Elements([]byte(`[1,2]`)) {
		if string(raw) != "1" {
			t.Errorf("went on to %s", raw)
		}
		break
	}
	for k := range rawjson.Fields([]byte(`{"a":1,"b":2}`)) {
		if string(k) != "a" {
			t.Errorf("went on to %s", k)
		}
		break
	}
}

func TestLookupFindsTheFirst(t *testing.T) {
	object := []byte(`{"id":"x","usage":null,"\u0075sage":{"total":1},"n":{"usage":2}}`)
	for key, want := range map[string]string{"usage": "null", "n": `{"usage":2}`, "id": `"x"`} {
		if got := rawjson.Lookup(object, key); string(got) != want {
			t.Errorf("Lookup(%q) = %s; want %s", key, got, want)
		}
	}
	if got := rawjson.Lookup(object, "total"); got != nil {
		t.Errorf("Lookup of an absent key = %s", got)
	}
	if got := rawjson.Lookup([]byte(`["usage"]`), "usage"); got != nil {
		t.Errorf("Lookup in an array = %s", got)
	}
}

func TestTextThatIsNotValidEndsEveryWalk(t *testing.T) {
	for _, text := range []string{
		`{"`, `{"a`, `{"a"`, `{"a":`, `{"a" 1`, `{"a":,"b":1}`, `{"a":1 "b":2`, `{"a\`, `{"a":[{"b":"c\"`, `{1:2}`, `{"a":}`,
		`[`, `[,`, `[1`, `[1 2`, `["a`, `["a\`, `["\"`, `[[`, `[{"a":[`, `[]]`, `}`, `"`, `"\`, `"\u`, `"\ud800\u`, `"\ud800\`, `"\q"`, "\"a\x00",
	} {
		for range rawjson.Elements([]byte(text)) {
			continue
		}
		for key := range rawjson.Fields([]byte(text)) {
			rawjson.Lookup([]byte(text), string(key))
		}
		rawjson.Kind([]byte(text))
		rawjson.AppendString(nil, []byte(text))
	}
}

func TestRawValuesCannotOverwriteWhatFollowsThem(t *testing.T) {
	src := []byte(`{"a":1,"b":[2,3]}`)
	o := parse(t, string(src))
	raw, _ := o.Get("a")
	_ = append(raw, "xxxx"...)
	_ = append(o.Members[0].Key, "xxxx"...)
	_ = append(rawjson.Lookup(o.Src, "a"), "xxxx"...)
	for raw := range rawjson.Elements(rawjson.Lookup(o.Src, "b")) {
		_ = append(raw, "xxxx"...)
	}
	if string(o.Src) != string(src) {
		t.Errorf("the source became %s", o.Src)
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	object := []byte(`{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}`)
	if n := testing.AllocsPerRun(100, func() {
		if rawjson.Lookup(object, "usage") == nil {
			t.Fatal("not found")
		}
		for range rawjson.Elements(rawjson.Lookup(object, "choices")) {
		}
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}
