package rawjson_test

import (
	"bytes"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

func TestTextsOfTheUsualEncodersAreCanonical(t *testing.T) {
	for text, want := range map[string]bool{
		`{}`: true, `{"a":"b\n\r\t\b\f\"\\"}`: true, `{"a":"é北😀<>&/"}`: true, `{"a":"\u0000\u0007\u000b\u001b\u001f"}`: true, "{\"a\":\"\x7f\u2028\"}": true,
		`{"a":"\/"}`: false, `{"\u0061":1}`: false, `{"a":["\u00e9"]}`: false, `{"a":"\ud800"}`: false, `{"a":{"b":"\u2028"}}`: false, "{\"a\":\"\xff\"}": false, "{\"\xe5\x8c\":1}": false,
		`{"a":"\u000a"}`: false, `{"a":"\u0008"}`: false, `{"a":"\u000c"}`: false, `{"a":"\u001B"}`: false, `{"a":"\u0022"}`: false, `{"a":"\u007f"}`: false, `{"a":"\u1000"}`: false,
	} {
		if got := parse(t, text).Canonical(); got != want {
			t.Errorf("%s is canonical: %v, want %v", text, got, want)
		}
	}
	if (rawjson.Object{}).Canonical() {
		t.Error("an object that was not parsed is known to be canonical")
	}
}

func TestEditsCanMakeATextForeign(t *testing.T) {
	o := parse(t, `{"a":1,"b":"c"}`)
	for _, tt := range []struct {
		edit rawjson.Edit
		want bool
	}{
		{set("a", `"\n é"`), true},
		{set("a", `"\u00e9"`), false},
		{set("d", `["\/"]`), false},
		{set("é\n", `2`), true},
		{set("d", "\"\xff\""), false},
		{del("b"), true},
	} {
		if got := o.With([]rawjson.Edit{tt.edit}).Canonical(); got != tt.want {
			t.Errorf("with %q=%s it is canonical: %v, want %v", tt.edit.Key, tt.edit.Value, got, tt.want)
		}
	}
	if foreign := parse(t, `{"a":"\/"}`); foreign.With([]rawjson.Edit{set("b", `1`)}).Canonical() {
		t.Error("an edit made a foreign text canonical")
	}
}

// canonical reports whether all strings in a valid text are as Quote spells them.
func canonical(text []byte) bool {
	switch rawjson.Kind(text) {
	case '"':
		text = bytes.Trim(text, " \t\r\n")
		s, _ := rawjson.String(text)
		return bytes.Equal(text, rawjson.Quote(nil, s))
	case '[':
		for raw := range rawjson.Elements(text) {
			if !canonical(raw) {
				return false
			}
		}
	case '{':
		// A name is given unescaped, and so is looked for as it should be.
		for key, raw := range rawjson.Fields(text) {
			if !bytes.Contains(text, rawjson.Quote(nil, string(key))) || !canonical(raw) {
				return false
			}
		}
	}
	return true
}

func FuzzCanonicalTextsAreAsQuoteWritesThem(f *testing.F) {
	addTexts(f)
	f.Add([]byte(`{"a":"b\n\r\t\b\f\"\\é北😀<>&/\u0000\u0007\u000b\u001b\u001f"}`))
	f.Add([]byte(`{"a\n":{"b":["\/"]},"\u000a":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := rawjson.ParseObject(text, nil)
		if err != nil {
			return
		}
		if o.Canonical() && !canonical(text) {
			t.Errorf("%q is not canonical", text)
		}
		for _, m := range o.Members {
			raw := text[m.ValueStart:m.ValueEnd]
			s, ok := rawjson.String(raw)
			if !ok {
				continue
			}
			quoted := rawjson.Quote(nil, s)
			if got := rawjson.AppendCanonical(nil, raw); string(got) != string(quoted[1:len(quoted)-1]) {
				t.Errorf("%s is respelled %s, want %s", raw, got, quoted)
			}
		}
	})
}
