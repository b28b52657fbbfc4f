package rawjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

func TestValidAcceptsWhatTheGrammarAllows(t *testing.T) {
	for _, text := range []string{
		`{}`, `[]`, `""`, `0`, `-0`, `true`, `false`, `null`, ` 1 `, "\t\r\n [ ] \n",
		`12345678901234567890`, `-1.5e+10`, `1E-2`, `0.0`, `0e0`,
		`{"a":{"b":[1,{"c":[]}]},"d":"e"}`, `[[],{},[{}],""]`,
		`"\"\\\/\b\f\n\r\t\u0041"`, `"\ud800"`, `"\udc00\ud800"`, "\"\xff\xfe\"", "\"\x7f\"", `"北😀"`,
		`{"a":1,"a":2}`, `{"":0}`, `"<>&"`,
	} {
		if err := rawjson.Valid([]byte(text)); err != nil {
			t.Errorf("Valid(%q) = %v; want nil", text, err)
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("encoding/json takes %q for invalid", text)
		}
	}
}

func TestSyntaxErrorsNameTheByteAtFault(t *testing.T) {
	for _, tt := range []struct {
		text, message string
		offset        int64
	}{
		{``, "unexpected end of text, want a value", 0},
		{`  `, "unexpected end of text, want a value", 2},
		{`{`, "unexpected end of text, want a string as key", 1},
		{`{"a"`, "unexpected end of text, want ':'", 4},
		{`{"a":`, "unexpected end of text, want a value", 5},
		{`{"a":1`, "unexpected end of text, want ',' or '}'", 6},
		{`{"a":1,`, "unexpected end of text, want a string as key", 7},
		{`{"a":1,}`, "unexpected '}', want a string as key", 7},
		{`{"a":1]`, "unexpected ']', want ',' or '}'", 6},
		{`{"a" 1}`, "unexpected '1', want ':'", 5},
		{`{a:1}`, "unexpected 'a', want a string as key", 1},
		{`{"a":[1}`, "unexpected '}', want ',' or ']'", 7},
		{`{"a":{"b":1]}`, "unexpected ']', want ',' or '}'", 11},
		{`{"a":{1:2}}`, "unexpected '1', want a string as key", 6},
		{`[1,]`, "unexpected ']', want a value", 3},
		{`[,1]`, "unexpected ',', want a value", 1},
		{`{}}`, "unexpected '}', want nothing after the value", 2},
		{`{} x`, "unexpected 'x', want nothing after the value", 3},
		{`1 2`, "unexpected '2', want nothing after the value", 2},
		{`"abc`, "unexpected end of text in a string", 4},
		{"\"a\nb\"", `unexpected '\n', want control characters in strings to be escaped`, 2},
		{"\"12345678\x00\"", `unexpected '\x00', want control characters in strings to be escaped`, 9},
		{`"\x"`, `unexpected 'x', want one of "\/bfnrtu after a backslash`, 2},
		{`"\`, `unexpected end of text, want one of "\/bfnrtu after a backslash`, 2},
		{`"\u12g4"`, `unexpected 'g', want four hexadecimal digits after \u`, 5},
		{`"\u12`, `unexpected end of text, want four hexadecimal digits after \u`, 5},
		{`01`, "unexpected '1', want nothing after the value", 1},
		{`-`, "unexpected end of text, want a digit", 1},
		{`-x`, "unexpected 'x', want a digit", 1},
		{`1.`, "unexpected end of text, want a digit", 2},
		{`1.e1`, "unexpected 'e', want a digit", 2},
		{`1e+`, "unexpected end of text, want a digit", 3},
		{`+1`, "unexpected '+', want a value", 0},
		{`.5`, "unexpected '.', want a value", 0},
		{`NaN`, "unexpected 'N', want a value", 0},
		{`nul`, "unexpected end of text, want true, false or null", 3},
		{`trUe`, "unexpected 'U', want true, false or null", 2},
		{`'a'`, `unexpected '\'', want a value`, 0},
		{"\xef\xbb\xbf{}", "unexpected byte 0xef, want a value", 0},
		{"\u00a0{}", "unexpected byte 0xc2, want a value", 0},
	} {
		if json.Valid([]byte(tt.text)) {
			t.Errorf("encoding/json takes %q for valid", tt.text)
		}
		_, parseErr := rawjson.ParseObject([]byte(tt.text), nil)
		for _, err := range []error{rawjson.Valid([]byte(tt.text)), parseErr} {
			syntax, ok := errors.AsType[*rawjson.SyntaxError](err)
			if !ok {
				t.Errorf("%q: error %v; want a *SyntaxError", tt.text, err)
				continue
			}
			if syntax.Offset != tt.offset || syntax.Reason != tt.message {
				t.Errorf("%q: %q at %d; want %q at %d", tt.text, syntax.Reason, syntax.Offset, tt.message, tt.offset)
			}
		}
	}
}

func TestSyntaxErrorsReadWell(t *testing.T) {
	err := rawjson.Valid([]byte(`{"a":1,}`))
	if want := `invalid JSON at byte 7: unexpected '}', want a string as key`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestParseObjectRefusesOtherJSON(t *testing.T) {
	for _, text := range []string{`[]`, ` "a" `, `null`, `12`, `true`} {
		if _, err := rawjson.ParseObject([]byte(text), nil); !errors.Is(err, rawjson.ErrNotObject) {
			t.Errorf("ParseObject(%q) = %v; want ErrNotObject", text, err)
		}
	}
}

func TestNestingIsLimitedAndCostsNoStack(t *testing.T) {
	nested := func(open, inner, closing string, depth int) []byte {
		return []byte(strings.Repeat(open, depth) + inner + strings.Repeat(closing, depth))
	}
	for _, tt := range []struct {
		name                 string
		open, inner, closing string
	}{
		{"arrays", `[`, ``, `]`},
		{"objects", `{"a":`, `1`, `}`},
		{"both", `[{"a":`, `""`, `}]`},
	} {
		per := strings.Count(tt.open, "[") + strings.Count(tt.open, "{")
		if err := rawjson.Valid(nested(tt.open, tt.inner, tt.closing, rawjson.MaxDepth/per)); err != nil {
			t.Errorf("%s, as deep as allowed: %v", tt.name, err)
		}
		deeper := nested(tt.open, tt.inner, tt.closing, rawjson.MaxDepth/per+1)
		if syntax, ok := errors.AsType[*rawjson.SyntaxError](rawjson.Valid(deeper)); !ok || syntax.Reason != "nested deeper than 1000 levels" {
			t.Errorf("%s, one deeper: %v", tt.name, syntax)
		}
	}

	if _, err := rawjson.ParseObject([]byte(`{"a":`+strings.Repeat("[", 999)+strings.Repeat("]", 999)+`}`), nil); err != nil {
		t.Errorf("object of depth 1000: %v", err)
	}
	if _, err := rawjson.ParseObject([]byte(`{"a":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+`}`), nil); err == nil {
		t.Error("object of depth 1001 was accepted")
	}
	if err := rawjson.Valid([]byte(strings.Repeat("[", 8<<20))); err == nil {
		t.Error("eight million open arrays were accepted")
	}
}

func TestTheNumberOfMembersIsLimited(t *testing.T) {
	text := func(n int) []byte {
		return []byte(`{"nested":{` + strings.Repeat(`"":0,`, 1<<17) + `"":0}` + strings.Repeat(`,"":0`, n-1) + `}`)
	}
	if _, err := rawjson.ParseObject(text(rawjson.MaxMembers), nil); err != nil {
		t.Errorf("as many as allowed: %v", err)
	}
	_, err := rawjson.ParseObject(text(rawjson.MaxMembers+1), nil)
	if syntax, ok := errors.AsType[*rawjson.SyntaxError](err); !ok || syntax.Reason != "more than 65536 members" {
		t.Errorf("one more: %v", err)
	}
}

// The scanner looks at eight bytes at a time; every position of a special byte
// relative to that window must be found.
func TestStringsEndWhereTheyDoAtEveryAlignment(t *testing.T) {
	for n := range 40 {
		plain := strings.Repeat("ü", n/2) + strings.Repeat("x", n%2+n/2)
		for _, tail := range []string{`"`, `\""`, `\\"`, `\u0022"`, `\\\""`} {
			text := `{"k":"` + plain + tail + `,"after":1}`
			o, err := rawjson.ParseObject([]byte(text), nil)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if raw, _ := o.Get("k"); string(raw) != `"`+plain+tail {
				t.Errorf("%s: k is %s", text, raw)
			}
		}
		for c := range byte(0x20) {
			if rawjson.Valid([]byte(`"`+plain+string(rune(c))+`"`)) == nil {
				t.Errorf("control character %#x after %d bytes was accepted", c, len(plain))
			}
		}
	}
}

// The same for blocks of 64 bytes: what is in them is found at every place, beside
// other things, and what is not JSON is named as it is in short strings.
func TestLongStringsAreJudgedLikeShortOnes(t *testing.T) {
	parts := []string{
		``, `\n`, `\"`, `\\`, `\\\"`, `\\\\\n`, `\/`, `\u001b`, `\u00e9`, `é`, "\x7f", "\xff", `]`, `#`, // are JSON
		`\x`, `\u12g4`, "\x1f", "\n", `\\\u`, "\\\x80", "\\\n", // are not
	}
	for n := range 131 {
		for i, first := range parts {
			second := parts[(i*7+n)%len(parts)]
			short := `{"k":"` + first + second + `"}`
			long := `{"k":"` + strings.Repeat("x", n) + first + second + strings.Repeat("y", 200-n) + `"}`
			got, err := rawjson.ParseObject([]byte(long), nil)
			want, wanted := rawjson.ParseObject([]byte(short), nil)
			if json.Valid([]byte(long)) != (err == nil) {
				t.Fatalf("%q: %v", long, err)
			}
			if got.Canonical() != want.Canonical() {
				t.Errorf("%q is canonical: %v", long, got.Canonical())
			}
			if err == nil {
				continue
			}
			at, _ := errors.AsType[*rawjson.SyntaxError](err)
			from, _ := errors.AsType[*rawjson.SyntaxError](wanted)
			if from.Offset < int64(len(short)-2) && (at.Offset != from.Offset+int64(n) || at.Reason != from.Reason) {
				t.Errorf("%q: %v, want it as %v", long, err, wanted)
			}
		}
	}
}

func TestMembersAreFoundWithTheirOffsets(t *testing.T) {
	const text = " {\n \"model\" : \"m\" ,\"messages\":[ {\"content\":\"}\\\"\"} ],\t\"n\":12345678901234567890 } \n"
	o, err := rawjson.ParseObject([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ key, raw string }{
		{"model", `"m"`},
		{"messages", `[ {"content":"}\""} ]`},
		{"n", `12345678901234567890`},
	}
	if len(o.Members) != len(want) {
		t.Fatalf("%d members; want %d", len(o.Members), len(want))
	}
	for i, w := range want {
		m := o.Members[i]
		if string(m.Key) != w.key || text[m.ValueStart:m.ValueEnd] != w.raw || text[m.Start:m.Start+len(w.key)+2] != `"`+w.key+`"` {
			t.Errorf("member %d: key %q at %d, value %s", i, m.Key, m.Start, text[m.ValueStart:m.ValueEnd])
		}
		if raw, ok := o.Get(w.key); !ok || string(raw) != w.raw {
			t.Errorf("Get(%q) = %s, %v", w.key, raw, ok)
		}
	}
	if raw, ok := o.Get("absent"); ok || raw != nil {
		t.Errorf("Get of an absent key = %s, %v", raw, ok)
	}
}

func TestKeysAreComparedUnescaped(t *testing.T) {
	o, err := rawjson.ParseObject([]byte(`{"mo\u0064el":1,"model":2,"a\"\\\u00fc\ud83d\ude00":3,"\ud800":4,"Model":5}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := o.Count("model"); n != 2 {
		t.Errorf(`Count("model") = %d; want 2`, n)
	}
	if raw, _ := o.Get("model"); string(raw) != "1" {
		t.Errorf("Get returns %s; want the first, 1", raw)
	}
	if raw, _ := o.Get("a\"\\ü😀"); string(raw) != "3" {
		t.Errorf("Get with escapes returns %s; want 3", raw)
	}
	if n := o.Count("\ufffd"); n != 1 {
		t.Errorf("a lone surrogate as key: Count = %d; want 1", n)
	}
	if n := o.Count("absent"); n != 0 {
		t.Errorf("Count of an absent key = %d", n)
	}
}

func TestParsingIntoAReusedSliceDoesNotAllocate(t *testing.T) {
	src := []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"n":1}`)
	members := make([]rawjson.Member, 0, 8)
	if n := testing.AllocsPerRun(100, func() {
		o, err := rawjson.ParseObject(src, members)
		if err != nil || len(o.Members) != 4 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}
