package sse_test

import (
	"testing"

	"github.com/muxproxy/muxproxy/proxy/sse"
)

const none = "\x00none"

// text makes nil visible.
func text(b []byte) string {
	if b == nil {
		return none
	}
	return string(b)
}

func TestFieldsOfAnEvent(t *testing.T) {
	for _, tt := range []struct {
		event, data, kind string
		comment           bool
	}{
		{"data: {\"a\":1}\n\n", `{"a":1}`, none, false},
		{"data:{\"a\":1}\n\n", `{"a":1}`, none, false},
		{"data:  two spaces \r\n\r\n", " two spaces ", none, false},
		{"data:\tx\n\n", "\tx", none, false},
		{"data: a: b\n\n", "a: b", none, false},
		{"data: 北😀\r\r", "北😀", none, false},
		{"data:\n\n", "", none, false},
		{"data: \n\n", "", none, false},
		{"data\n\n", "", none, false},
		{"data: a\ndata: b\r\ndata\rdata:c\n\n", "a\nb\n\nc", none, false},
		{"event: message_stop\ndata: {}\n\n", "{}", "message_stop", false},
		{"event:x\r\n: c\r\nid: 7\r\ndata: {}\r\nretry: 5\r\n\r\n", "{}", "x", false},
		{"event: a\nevent: b\n\n", none, "b", false},
		{"event\n\n", none, "", false},
		{": OPENROUTER PROCESSING\n\n", none, none, true},
		{":\n: b\n\n", none, none, true},
		{": data: x\n\n", none, none, true},
		{": c\ndata: x\n\n", "x", none, false},
		{"\n", none, none, true},
		{"", none, none, true},
		{"id: 1\n\n", none, none, false},
		{"Data: x\n\n", none, none, false},
		{" data: x\n\n", none, none, false},
		{"data : x\n\n", none, none, false},
		{"database: x\n\n", none, none, false},
		{"dat\n\n", none, none, false},
		{"\ufeffdata: x\n\n", "x", none, false},
		{"\ufeff: c\n\n", none, none, true},
		{"\ufeff\n", none, none, true},
		{"data: [DONE]", "[DONE]", none, false},
		{"data: [DONE]\n", "[DONE]", none, false},
		{"data: [DONE]\r", "[DONE]", none, false},
	} {
		event := []byte(tt.event)
		if got := text(sse.Data(event)); got != tt.data {
			t.Errorf("Data(%q) = %q; want %q", tt.event, got, tt.data)
		}
		if got := text(sse.Type(event)); got != tt.kind {
			t.Errorf("Type(%q) = %q; want %q", tt.event, got, tt.kind)
		}
		if got := sse.IsComment(event); got != tt.comment {
			t.Errorf("IsComment(%q) = %v; want %v", tt.event, got, tt.comment)
		}
		if string(event) != tt.event {
			t.Errorf("%q became %q", tt.event, event)
		}
	}
}

func TestReplaceDataLeavesTheRestAsItIs(t *testing.T) {
	for _, tt := range []struct{ name, event, data, want string }{
		{"with a space", "data: old\n\n", "new", "data: new\n\n"},
		{"without a space", "data:old\n\n", "new", "data:new\n\n"},
		{"second space is data", "data:  old\n\n", "new", "data: new\n\n"},
		{"data with a space of its own", "data:old\n\n", " new", "data:  new\n\n"},
		{"other fields and line ends", "event: x\r\n: c\rdata: old\r\nid:  1\n\r\n", "new", "event: x\r\n: c\rdata: new\r\nid:  1\n\r\n"},
		{"empty", "data: old\n\n", "", "data: \n\n"},
		{"of nothing", "data\r\n\r\n", "new", "data:new\r\n\r\n"},
		{"of nothing with nothing", "data\n\n", "", "data\n\n"},
		{"byte order mark", "\ufeffdata: old\n\n", "new", "\ufeffdata: new\n\n"},
		{"no blank line", "data: old", "new", "data: new"},
		{"no data", "event: x\n\n", "new", "event: x\n\n"},
		{"comment", ": data: old\n\n", "new", ": data: old\n\n"},
		{"several data lines", "data: a\nevent: x\ndata:b\ndata: c\n\n", "new", "data: new\nevent: x\n\n"},
		{"line ends in the data", "data: old\r\nid: 1\r\n\r\n", "a\nb\r\nc\rd", "data: a\r\ndata: b\r\ndata: c\r\ndata: d\r\nid: 1\r\n\r\n"},
		{"line ends in the data, no blank line", "data:old", "a\n", "data:a\ndata:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			event := []byte(tt.event)
			if got := sse.ReplaceData([]byte("before|"), event, []byte(tt.data)); string(got) != "before|"+tt.want {
				t.Errorf("got  %q\nwant %q", got, "before|"+tt.want)
			}
			if string(event) != tt.event {
				t.Errorf("the event became %q", event)
			}
		})
	}
}

func TestOneDataLineIsReturnedInPlace(t *testing.T) {
	event := []byte("event: x\ndata: abc\n\n")
	data := sse.Data(event)
	if &data[0] != &event[15] {
		t.Error("Data returned a copy")
	}
	_ = append(data, "overwritten"...)
	_ = append(sse.Type(event), "overwritten"...)
	if string(event) != "event: x\ndata: abc\n\n" {
		t.Errorf("the event became %q", event)
	}
	if n := testing.AllocsPerRun(100, func() {
		sse.Data(event)
		sse.Type(event)
		sse.IsComment(event)
	}); n != 0 {
		t.Errorf("%v allocations; want 0", n)
	}
}
