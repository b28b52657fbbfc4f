package rawjson_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

func parse(tb testing.TB, text string) rawjson.Object {
	tb.Helper()
	o, err := rawjson.ParseObject([]byte(text), nil)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return o
}

// same reports whether two objects are equal, a nil slice of members being empty.
func same(a, b rawjson.Object) bool {
	return bytes.Equal(a.Src, b.Src) && slices.EqualFunc(a.Members, b.Members, func(a, b rawjson.Member) bool {
		return reflect.DeepEqual(a, b)
	})
}

// everyWay makes the edits in new memory and in that of the text, with less room
// and more around it, and checks that each gives want.
func everyWay(tb testing.TB, o rawjson.Object, edits []rawjson.Edit, want rawjson.Object) {
	tb.Helper()
	if with := o.With(edits); !same(with, want) {
		tb.Fatalf("%q with %q is %+v; want %+v", o.Src, edits, with, want)
	}
	for _, room := range []struct{ before, behind int }{{0, 0}, {1, 0}, {0, 3}, {500, 0}, {0, 500}, {500, 500}} {
		memory := slices.Concat(make([]byte, room.before), o.Src, make([]byte, room.behind))
		own := o
		own.Members = slices.Grow(slices.Clone(o.Members), room.behind) // with and without room for more
		own.Src = memory[room.before : room.before+len(o.Src)]
		if in := own.WithIn(memory, room.before, edits); !same(in, want) {
			tb.Fatalf("%q with %q in place, room %v, is %+v; want %+v", o.Src, edits, room, in, want)
		}
	}
}

func set(key, value string) rawjson.Edit { return rawjson.Edit{Key: key, Value: []byte(value)} }

func del(key string) rawjson.Edit { return rawjson.Edit{Key: key} }

func TestApplyChangesOnlyTheEditedMembers(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		edits      []rawjson.Edit
		want       string
	}{
		{"nothing", ` { "a" : 1 } `, nil, ` { "a" : 1 } `},
		{"replace first", `{"a":1, "b":2}`, []rawjson.Edit{set("a", "10")}, `{"a":10, "b":2}`},
		{"replace last", "{\"a\":1,\"b\" :\t2 }\n", []rawjson.Edit{set("b", "20")}, "{\"a\":1,\"b\" :\t20 }\n"},
		{"replace only", `{ "a" : "x" }`, []rawjson.Edit{set("a", `"longer"`)}, `{ "a" : "longer" }`},
		{"replace under an escaped name", `{"mo\u0064el":"a"}`, []rawjson.Edit{set("model", `"b"`)}, `{"mo\u0064el":"b"}`},
		{"delete first", `{ "a": 1, "b": 2, "c": 3 }`, []rawjson.Edit{del("a")}, `{ "b": 2, "c": 3 }`},
		{"delete middle", `{ "a": 1, "b": 2, "c": 3 }`, []rawjson.Edit{del("b")}, `{ "a": 1, "c": 3 }`},
		{"delete last", `{ "a": 1, "b": 2, "c": 3 }`, []rawjson.Edit{del("c")}, `{ "a": 1, "b": 2 }`},
		{"delete only", "{\n \"a\": 1\n}", []rawjson.Edit{del("a")}, "{\n \n}"},
		{"delete last two", `{ "a": 1, "b": 2, "c": 3 }`, []rawjson.Edit{del("c"), del("b")}, `{ "a": 1 }`},
		{"delete first two", `{ "a": 1, "b": 2, "c": 3 }`, []rawjson.Edit{del("a"), del("b")}, `{ "c": 3 }`},
		{"delete first and last", `{ "a": 1, "b": 2, "c": 3 }`, []rawjson.Edit{del("c"), del("a")}, `{ "b": 2 }`},
		{"delete all", `{ "a": 1 , "b": 2 }`, []rawjson.Edit{del("a"), del("b")}, `{  }`},
		{"delete absent", `{"a":1}`, []rawjson.Edit{del("b")}, `{"a":1}`},
		{"delete absent from empty", `{}`, []rawjson.Edit{del("b")}, `{}`},
		{"insert", `{ "a": 1 }`, []rawjson.Edit{set("b", "2")}, `{ "a": 1,"b":2 }`},
		{"insert two", `{"a":1}`, []rawjson.Edit{set("b", "2"), set("c", "3")}, `{"a":1,"b":2,"c":3}`},
		{"insert into empty", `{}`, []rawjson.Edit{set("a", "1")}, `{"a":1}`},
		{"insert two into empty", " { } ", []rawjson.Edit{set("a", "1"), set("b", "2")}, ` {"a":1,"b":2 } `},
		{"insert a name with escapes", `{}`, []rawjson.Edit{set("a\"\n<", "1")}, `{"a\"\n<":1}`},
		{"replace last and insert", `{"a":1}`, []rawjson.Edit{set("b", "2"), set("a", "3")}, `{"a":3,"b":2}`},
		{"delete last and insert", `{ "a": 1, "b": 2 }`, []rawjson.Edit{del("b"), set("c", "3")}, `{ "a": 1,"c":3 }`},
		{"delete all and insert", `{ "a": 1 }`, []rawjson.Edit{set("c", "3"), del("a")}, `{ "c":3 }`},
		{"replace beside deletions", `{"a":1,"b":2,"c":3}`, []rawjson.Edit{del("a"), set("b", "20"), del("c")}, `{"b":20}`},
		{"white space around values is dropped", `{"a":1}`, []rawjson.Edit{set("a", " 2\r\n"), set("b", "\t3  ")}, `{"a":2,"b":3}`},
		{"first of duplicates", `{"a":1,"b":0,"a":2}`, []rawjson.Edit{set("a", "9")}, `{"a":9,"b":0,"a":2}`},
		{"delete first of duplicates", `{"a":1,"b":0,"a":2}`, []rawjson.Edit{del("a")}, `{"b":0,"a":2}`},
		{"last edit of a name holds", `{"a":1}`, []rawjson.Edit{set("a", "2"), set("b", "1"), set("a", "3"), set("b", "2")}, `{"a":3,"b":2}`},
		{"set after delete", `{"a":1,"b":2}`, []rawjson.Edit{del("b"), set("b", "3")}, `{"a":1,"b":3}`},
		{"delete after set", `{"a":1,"b":2}`, []rawjson.Edit{set("b", "3"), del("b"), set("c", "1"), del("c")}, `{"a":1}`},
		{
			"everything else survives",
			`{"z":12345678901234567890, "m" : "a<b>&\u003c\/\ud800" ,"f":1.0e+00,"model":"x","n":{"b":1,"a":[ 1 ,2]}}`,
			[]rawjson.Edit{set("model", `"y"`)},
			`{"z":12345678901234567890, "m" : "a<b>&\u003c\/\ud800" ,"f":1.0e+00,"model":"y","n":{"b":1,"a":[ 1 ,2]}}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := parse(t, tt.text)
			got := o.Apply(tt.edits)
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if string(o.Src) != tt.text {
				t.Errorf("the source became %s", o.Src)
			}
			again, err := rawjson.ParseObject(got, nil)
			if err != nil {
				t.Fatal(err)
			}
			everyWay(t, o, tt.edits, again)
		})
	}
}

// Deletions, replacements and insertions meet at the same commas; none of their
// combinations may leave one too many or too few.
func TestEveryCombinationOfEditsLeavesAnObject(t *testing.T) {
	values := [][]byte{nil, []byte(`0`), []byte(`"longer than what was there"`)}
	for _, text := range []string{
		`{}`, ` { } `, `{"a":1}`, `{ "a" : 1 , "b" : [1,2] }`, `{"a":1,"b":"x","c":{"d":null}}`,
		"{\n\t\"c\": 3,\n\t\"a\": 4,\n\t\"b\": true\n}\n", `{"\u0061":1,"b":2,"a":3}`, `{"x":1,"a":2,"y":3,"b":4,"z":5}`,
	} {
		o := parse(t, text)
		for i := range 81 {
			edits := []rawjson.Edit{
				{Key: "a", Value: values[i%3]},
				{Key: "b", Value: values[i/3%3]},
				{Key: "c", Value: values[i/9%3]},
				{Key: "n\"ew", Value: values[i/27%3]},
			}[i%2:]
			again, err := rawjson.ParseObject(o.Apply(edits), nil)
			if err != nil {
				t.Fatalf("%s with %q: %v", text, edits, err)
			}
			if got, want := fieldsOf(t, again.Src), applied(o, edits); !slices.Equal(got, want) {
				t.Errorf("%s with %q became %q; want %q", text, edits, got, want)
			}
			everyWay(t, o, edits, again)
		}
	}
}

func TestEditsNeverAliasTheSource(t *testing.T) {
	o := parse(t, `{"a":1}`)
	o.Apply(nil)[1] = 'x'
	o.With(nil).Members[0].Key[0] = 'x'
	if string(o.Src) != `{"a":1}` {
		t.Errorf("the source became %s", o.Src)
	}
}

func TestApplyAllocatesTheResultAndNothingElse(t *testing.T) {
	o := parse(t, `{"model":"m","messages":[],"stream":true}`)
	edits := []rawjson.Edit{set("model", `"another"`), set("stream_options", `{"include_usage":true}`), del("messages"), set("n", "1")}
	if n := testing.AllocsPerRun(100, func() { o.Apply(edits) }); n != 1 {
		t.Errorf("%v allocations; want 1", n)
	}
	if n := testing.AllocsPerRun(100, func() { o.With(edits) }); n != 2 {
		t.Errorf("With makes %v allocations; want 2, text and members", n)
	}
	if out := o.Apply(edits); cap(out) != len(out) {
		t.Errorf("result of %d bytes has capacity %d", len(out), cap(out))
	}
}

func TestOnlyTheFirstOfManyDuplicatesIsEdited(t *testing.T) {
	text := `{` + string(bytes.Repeat([]byte(`"x":0,`), 30_000)) + string(bytes.Repeat([]byte(`"a":0,`), 30_000)) + `"a":0}`
	o := parse(t, text)
	if n := o.Count("a"); n != 30_001 {
		t.Fatalf("Count = %d", n)
	}
	out := o.Apply([]rawjson.Edit{set("a", "1")})
	if len(out) != len(text) || bytes.Count(out, []byte(`"a":1`)) != 1 {
		t.Error("not exactly one member was changed")
	}
}
