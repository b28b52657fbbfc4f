package frp_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/tunnel/frp"
)

func TestMessagesOfAnyLengthUpToTheLimitPass(t *testing.T) {
	for _, length := range []int{0, 1, frp.MaxMessage - 2} {
		var wire bytes.Buffer
		content := strings.Repeat("a", length)
		if err := frp.WriteMessage(&wire, 'h', content); err != nil {
			t.Fatal(err)
		}
		wire.WriteString("next")
		kind, got, err := frp.ReadMessage(&wire)
		if err != nil || kind != 'h' || string(got) != `"`+content+`"` || wire.String() != "next" {
			t.Errorf("length %d: got %q %.20q, %v, then %q", length, kind, got, err, wire.String())
		}
	}
}

func TestLongMessagesAreNeitherSentNorRead(t *testing.T) {
	if err := frp.WriteMessage(io.Discard, 'o', strings.Repeat("a", frp.MaxMessage)); err == nil {
		t.Error("a message over the limit was written")
	}
	for _, length := range []uint64{frp.MaxMessage + 1, 1 << 40, 1 << 63, 1<<64 - 1} {
		header := binary.BigEndian.AppendUint64([]byte{'p'}, length)
		if _, _, err := frp.ReadMessage(bytes.NewReader(header)); err == nil || strings.Contains(err.Error(), "EOF") {
			t.Errorf("length %d: %v; want a refusal before the content", length, err)
		}
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("r\x00\x00\x00\x00\x00\x00\x00\x02{}rest"))
	f.Add([]byte("1\x00\x00\x00\x00\x00\x00\x00\x10{\"run_id\":\"abcd\"}"))
	f.Add([]byte("p\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		reader := bytes.NewReader(wire)
		kind, content, err := frp.ReadMessage(reader)
		if err != nil {
			return
		}
		if len(content) > frp.MaxMessage {
			t.Fatalf("%d bytes of content", len(content))
		}
		read := append([]byte{kind}, binary.BigEndian.AppendUint64(nil, uint64(len(content)))...)
		read = append(read, content...)
		if rest, _ := io.ReadAll(reader); !bytes.Equal(append(read, rest...), wire) {
			t.Fatalf("%q and %q are not %q", read, rest, wire)
		}
	})
}
