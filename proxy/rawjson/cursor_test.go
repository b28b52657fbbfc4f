package rawjson_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

// told is what a cursor finds, written as JSON again. Of objects it goes over those
// members alone whose names are of even length.
func told(at *rawjson.Cursor) string {
	text := ""
	switch at.Kind() {
	case '[':
		for range at.Elements {
			text += told(at) + ","
		}
		return "[" + text + "]"
	case '{':
		for key := range at.Fields {
			text += fmt.Sprintf("%q:", key)
			if len(key)%2 == 0 {
				text += told(at)
			}
			text += ","
		}
		return "{" + text + "}"
	}
	return string(at.Value())
}

func toldAll(text []byte) string {
	at := rawjson.Walk(text)
	return told(&at)
}

// toldOf is the same with Elements and Fields.
func toldOf(raw []byte) string {
	text := ""
	switch rawjson.Kind(raw) {
	case '[':
		for element := range rawjson.Elements(raw) {
			text += toldOf(element) + ","
		}
		return "[" + text + "]"
	case '{':
		for key, value := range rawjson.Fields(raw) {
			text += fmt.Sprintf("%q:", key)
			if len(key)%2 == 0 {
				text += toldOf(value)
			}
			text += ","
		}
		return "{" + text + "}"
	}
	return string(raw)
}

func TestCursorsGoOverATextOnce(t *testing.T) {
	for text, want := range map[string]string{
		` [ 1 , "a]" ,[ ], { } ] `:                    `[1,"a]",[],{},]`,
		`{"ab":{"cd":[1,{"ef":2}]},"g":[[3]],"":"h"}`: `{"ab":{"cd":[1,{"ef":2,},],},"g":,"":"h",}`,
		`{ "\u0061b" : [ true ] , "c" : {"d":"}"} }`:  `{"ab":[true,],"c":,}`,
		`"a"`: `"a"`,
		``:    ``,
	} {
		if got := toldAll([]byte(text)); got != want {
			t.Errorf("%s is told as %s, want %s", text, got, want)
		}
	}
}

func FuzzCursorsAgreeWithElementsAndFields(f *testing.F) {
	addTexts(f)
	f.Add([]byte(` [ 1 ,[2],{"a":[3],"bc":{"d":"e\""}} ,"]" ] `))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := toldAll(text) // must neither panic nor loop, whatever the text is
		if !json.Valid(text) || tooDeep(text) {
			return
		}
		want := toldOf(text)
		if rawjson.Kind(text) != '{' && rawjson.Kind(text) != '[' {
			at := rawjson.Walk(text)
			want = string(at.Value())
		}
		if got != want {
			t.Errorf("%q is told as %s, want %s", text, got, want)
		}
	})
}
