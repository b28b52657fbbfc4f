package rawjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// tooDeep reports whether valid JSON passes the nesting limit.
func tooDeep(text []byte) bool {
	depth := 0
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return false
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			if depth++; depth > rawjson.MaxDepth {
				return true
			}
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

func addTexts(f *testing.F) {
	f.Helper()
	for _, text := range []string{
		`{}`, `{"a":1}`, ` { "mo\u0064el" : "x" , "b":[1,{"c":null}],"n":-12.50E+3 } `, `{"a":1,"a":"\ud800\udc00"}`,
		`[]`, `"\ud800"`, `1e5`, `{"a":[[[[]]]]}`, "{\"\xff\":\"\xe5\x8c\"}", `{"a":tru}`, `{"a":"b`, `01`, "\"\t\"", ``,
		`{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		`{"a":"` + strings.Repeat(`All work\n\\\"and no play é`, 10) + `\u001b"}`, `{"a":"` + strings.Repeat("x", 97) + `\`,
	} {
		f.Add([]byte(text))
	}
}

func FuzzValidAgreesWithEncodingJSON(f *testing.F) {
	addTexts(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		valid := json.Valid(text) && !tooDeep(text)
		err := rawjson.Valid(text)
		if valid != (err == nil) {
			t.Fatalf("%q: Valid = %v; encoding/json says %v", text, err, valid)
		}
		if err == nil {
			return
		}
		syntax, ok := errors.AsType[*rawjson.SyntaxError](err)
		if !ok || syntax.Offset < 0 || syntax.Offset > int64(len(text)) {
			t.Fatalf("%q: error %v, offset outside of the text", text, err)
		}
		// Everything before the offset could have been the start of valid text,
		// so cutting it there must leave nothing but an unexpected end.
		if cut, _ := errors.AsType[*rawjson.SyntaxError](rawjson.Valid(text[:syntax.Offset])); cut != nil && cut.Offset != syntax.Offset {
			t.Fatalf("%q: fault at %d, but cut there at %d", text, syntax.Offset, cut.Offset)
		}
	})
}

// A field is a name as encoding/json decodes it and a raw value.
type field struct{ key, value string }

// fieldsOf reads a valid object with encoding/json, duplicates included.
func fieldsOf(t *testing.T, text []byte) []field {
	t.Helper()
	var fields []field
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		fields = append(fields, field{key.(string), string(value)})
	}
	return fields
}

// valid turns bytes that are not UTF-8 into U+FFFD each, as encoding/json does.
func valid(s []byte) string { return string([]rune(string(s))) }

func FuzzObjectsAgreeWithEncodingJSON(f *testing.F) {
	addTexts(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := rawjson.ParseObject(text, nil)
		if !json.Valid(text) || tooDeep(text) {
			if _, ok := errors.AsType[*rawjson.SyntaxError](err); !ok {
				t.Fatalf("%q: ParseObject = %v; want a syntax error", text, err)
			}
			return
		}
		if rawjson.Kind(text) != '{' {
			if !errors.Is(err, rawjson.ErrNotObject) {
				t.Fatalf("%q: ParseObject = %v; want ErrNotObject", text, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := fieldsOf(t, text)
		var parsed, walked []field
		for _, m := range o.Members {
			parsed = append(parsed, field{valid(m.Key), string(text[m.ValueStart:m.ValueEnd])})
			if raw, ok := o.Get(string(m.Key)); !ok || !bytes.Equal(raw, rawjson.Lookup(text, string(m.Key))) {
				t.Fatalf("%q: Get and Lookup of %q disagree", text, m.Key)
			}
		}
		for k, v := range rawjson.Fields(text) {
			walked = append(walked, field{valid(k), string(v)})
		}
		if !slices.Equal(parsed, want) || !slices.Equal(walked, want) {
			t.Fatalf("%q: parsed %q and walked %q; want %q", text, parsed, walked, want)
		}
	})
}

func FuzzWalkingAgreesWithEncodingJSON(f *testing.F) {
	addTexts(f)
	f.Add([]byte(` [ 1 ,[2],{"a":[3]} ,"]" ] `))
	f.Add([]byte(`[0,12, 345,01,-6,7.0,8e1,999999999999999999,9223372036854775807,9223372036854775808 ,9]`))
	f.Add([]byte(`[0,12, 345,-6,7.0,8e1,999999999999999999,9223372036854775807,9223372036854775808 ,true,9]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want []string
		for raw := range rawjson.Elements(text) {
			got = append(got, string(raw))
		}
		for key := range rawjson.Fields(text) {
			rawjson.Lookup(text, string(key))
		}
		i := 0
		for n, ok := range rawjson.Ints(text) {
			if i >= len(got) {
				break // not an array
			}
			if want, wanted := rawjson.Int([]byte(got[i])); n != want || ok != wanted {
				t.Fatalf("%q: element %d is %d, %v; want %d, %v", text, i, n, ok, want, wanted)
			}
			i++
		}
		var raws []json.RawMessage
		if tooDeep(text) || json.Unmarshal(text, &raws) != nil {
			return // not an array: it was enough not to panic and to end
		}
		for _, raw := range raws {
			want = append(want, string(raw))
		}
		if !slices.Equal(got, want) || i != len(got) {
			t.Fatalf("%q: got %q, %d of them as numbers; want %q", text, got, i, want)
		}
	})
}

func FuzzApplyChangesOnlyWhatIsEdited(f *testing.F) {
	f.Add([]byte(`{"a":1, "b":2}`), "a", []byte(`"x"`), "c", []byte(`[]`), "b")
	f.Add([]byte(` { } `), "a", []byte(`1`), "a", []byte(`2`), "a")
	f.Add([]byte(`{"a":1,"a":2,"b":3}`), "a", []byte(``), "b", []byte(``), "c")
	f.Add([]byte(`{"\u0061":1}`), "a", []byte(`{}`), "\xff\"", []byte(`null`), "")
	f.Fuzz(func(t *testing.T, text []byte, key1 string, value1 []byte, key2 string, value2 []byte, key3 string) {
		o, err := rawjson.ParseObject(text, nil)
		if err != nil || len(value1) > 0 && rawjson.Valid(value1) != nil || len(value2) > 0 && rawjson.Valid(value2) != nil {
			return
		}
		edits := []rawjson.Edit{{Key: key1, Value: value1}, {Key: key2, Value: value2}, {Key: key3}}
		source := bytes.Clone(text)
		out := o.Apply(edits)
		if !bytes.Equal(text, source) {
			t.Fatalf("the source became %q", text)
		}
		edited, err := rawjson.ParseObject(out, nil)
		if err != nil && !tooDeep(out) {
			t.Fatalf("%q: %v", out, err)
		}
		if err != nil {
			return
		}

		everyWay(t, o, edits, edited)
		var got []field
		for _, m := range edited.Members {
			got = append(got, field{valid(m.Key), string(out[m.ValueStart:m.ValueEnd])})
		}
		if want := applied(o, edits); !slices.Equal(got, want) {
			t.Fatalf("%q with %q became %q, that is %q; want %q", text, edits, out, got, want)
		}
	})
}

// applied does to a list of fields what Apply does to text.
func applied(o rawjson.Object, edits []rawjson.Edit) []field {
	last := make(map[string][]byte)
	for _, e := range edits {
		last[e.Key] = e.Value
	}
	var fields []field
	seen := make(map[string]bool)
	for _, m := range o.Members {
		key, value := string(m.Key), o.Src[m.ValueStart:m.ValueEnd]
		edit, ok := last[key]
		ok = ok && !seen[key]
		seen[key] = true
		switch {
		case ok && len(edit) == 0:
			continue
		case ok:
			value = bytes.Trim(edit, " \t\r\n")
		}
		fields = append(fields, field{valid(m.Key), string(value)})
	}
	for i, e := range edits {
		later := slices.ContainsFunc(edits[i+1:], func(l rawjson.Edit) bool { return l.Key == e.Key })
		if !later && !seen[e.Key] && len(e.Value) > 0 {
			fields = append(fields, field{valid([]byte(e.Key)), string(bytes.Trim(e.Value, " \t\r\n"))})
		}
	}
	return fields
}

func FuzzStringsAgreeWithEncodingJSON(f *testing.F) {
	for _, s := range []string{`"a"`, `"\ud83d\ude00"`, `"\ud800\u0041"`, `"\ud800\ud800\udc00"`, "\"\xff\"", `"\/\b"`, `"`, `"\u12`, "<&\x00\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := rawjson.String([]byte(s)) // must not panic, whatever it is
		var want string
		if rawjson.Kind([]byte(s)) == '"' && json.Unmarshal([]byte(s), &want) == nil && got != want {
			t.Fatalf("String(%q) = %q; want %q", s, got, want)
		}

		quoted := rawjson.Quote(nil, s)
		if err := json.Unmarshal(quoted, &want); err != nil {
			t.Fatalf("Quote(%q) = %q: %v", s, quoted, err)
		}
		if want != valid([]byte(s)) {
			t.Fatalf("Quote(%q) = %q, which decodes to %q", s, quoted, want)
		}
		if got, ok := rawjson.String(quoted); !ok || got != want {
			t.Fatalf("String(%q) = %q; want %q", quoted, got, want)
		}
	})
}

func FuzzIntAgreesWithBigRat(f *testing.F) {
	for _, s := range []string{"0", "-1.50e1", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e18", "1e19", "120e-1", "0.001e3", "01", "1e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := rawjson.Int([]byte(s))
		if !json.Valid([]byte(s)) || rawjson.Kind([]byte(s)) != '0' {
			if ok {
				t.Fatalf("Int(%q) = %d", s, got)
			}
			return
		}
		if len(s) > 300 || len(s)-strings.IndexAny(s+"e", "eE") > 6 {
			return // a Rat would take all memory
		}
		want, parsed := new(big.Rat).SetString(strings.Trim(s, " \t\r\n"))
		if !parsed {
			t.Fatalf("big.Rat cannot read %q", s)
		}
		if fits := want.IsInt() && want.Num().IsInt64(); fits != ok || ok && got != want.Num().Int64() {
			t.Fatalf("Int(%q) = %d, %v; want %v", s, got, ok, want)
		}
	})
}
