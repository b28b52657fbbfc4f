//go:build !race

package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"
)

// The gates of what a call may cost. They count, so that no noise can blur them;
// the race detector would add to what they count.
const (
	mostAllocations      = 53       // of a JSON request of 2 KB, beyond what recording keeps
	mostBytes            = 64 << 10 // of a JSON request, however long it is
	mostWrites           = 2.0      // of a JSON request, to both sides
	mostEventWrites      = 1.05     // of an event that comes by itself
	mostEventAllocations = 0.2      // of it, where the recording and the text grow
	mostOfGoroutines     = 2        // an open stream
)

// heap counts what was allocated so far, and what of it is still used.
func heap() (allocated, used uint64) {
	var m runtime.MemStats
	for range 2 { // the second finishes what the first has begun to free
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.Mallocs, m.Mallocs - m.Frees
}

func TestGateAllocationsOfAJSONRequest(t *testing.T) {
	s := newBareStack(t, overridden(), jsonAnswer(1<<10))
	request := s.lean(2<<10, "")
	for range 200 { // what is made once
		s.roundTrip(request)
	}
	const n = 2000
	var beyond float64
	for range 3 { // whatever else the process does can only add
		allocated, used := heap()
		for range n {
			s.roundTrip(request)
		}
		allocatedAfter, usedAfter := heap()
		total, kept := float64(allocatedAfter-allocated)/n, float64(usedAfter-used)/n
		t.Logf("%.1f allocations a request, of which the recording keeps %.1f", total, kept)
		if beyond = total - kept; beyond <= mostAllocations {
			return
		}
	}
	t.Errorf("got %.1f allocations a request beyond what is kept; want at most %d", beyond, mostAllocations)
}

// The memory that a body is read into is that of the one before.
func TestGateBytesOfALongRequest(t *testing.T) {
	s := newBareStack(t, overridden(), jsonAnswer(1<<10))
	for _, size := range []int{1 << 20, 6 << 20} {
		request := s.lean(size, "")
		for range 3 { // what is made once
			s.roundTrip(request)
		}
		const n = 30
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			s.roundTrip(request)
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / n; got > mostBytes {
			t.Errorf("%d bytes are allocated for a request of %d; want at most %d", got, size, mostBytes)
		}
	}
}

func TestGateWritesOfAJSONRequest(t *testing.T) {
	s := newCountedStack(t, overridden(), jsonAnswer(1<<10))
	for _, request := range [][]byte{s.lean(2<<10, ""), s.request(2<<10, ""), s.lean(32<<10, "")} {
		s.roundTrip(request)
		const n = 100
		before := s.writes.Load()
		for range n {
			s.roundTrip(request)
		}
		if writes := float64(s.writes.Load()-before) / n; writes > mostWrites {
			t.Errorf("%d bytes: got %.2f writes a request; want at most %.2f", len(request), writes, mostWrites)
		}
	}
}

// streamed begins a stream and then writes the events that it is given, each once
// the one before has been read by the client.
func streamed(next <-chan struct{}) func(net.Conn) {
	head := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	event := "data: {\"id\":\"c\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"},\"finish_reason\":null}]}\n\n"
	chunk := fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event)
	return func(w net.Conn) {
		_, _ = w.Write(head)
		for range next {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

// sparse opens a stream, and gives what lets one event of it come through, and
// what ends it.
func sparse(t *testing.T) (s *bareStack, event, end func()) {
	t.Helper()
	next := make(chan struct{})
	s = newCountedStack(t, overridden(), streamed(next))
	if _, err := s.conn.Write(s.lean(2<<10, `,"stream":true`)); err != nil {
		t.Fatal(err)
	}
	event = func() {
		next <- struct{}{}
		for {
			line, err := s.reader.ReadSlice('\n')
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(line, []byte("data: ")) {
				return
			}
		}
	}
	event()
	return s, event, func() { close(next) }
}

func TestGateWritesOfASparseEvent(t *testing.T) {
	s, event, end := sparse(t)
	defer end()
	const n = 500
	before := s.writes.Load()
	for range n {
		event()
	}
	if writes := float64(s.writes.Load()-before) / n; writes > mostEventWrites {
		t.Errorf("got %.2f writes an event; want at most %.2f", writes, mostEventWrites)
	}
}

func TestGateAllocationsOfASparseEvent(t *testing.T) {
	_, event, end := sparse(t)
	defer end()
	const n = 2000
	before, _ := heap()
	for range n {
		event()
	}
	after, _ := heap()
	allocations := float64(after-before) / n
	t.Logf("%.2f allocations an event", allocations)
	if allocations > mostEventAllocations {
		t.Errorf("got %.2f allocations an event; want at most %.2f", allocations, mostEventAllocations)
	}
}

func TestGateGoroutinesOfAnOpenStream(t *testing.T) {
	next := make(chan struct{})
	s := newBareStack(t, overridden(), streamed(next))
	request := s.lean(2<<10, `,"stream":true`)
	open := func() {
		conn, err := net.Dial("tcp", s.conn.RemoteAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(conn).ReadSlice('\n'); err != nil { // its header is there
			t.Fatal(err)
		}
	}
	open() // and with it everything that there is once
	before := runtime.NumGoroutine()
	const n = 50
	for range n {
		open()
	}
	// One of each is the model's. Those that only lead there may still be ending.
	most := before + n*(mostOfGoroutines+1)
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > most && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if got := float64(runtime.NumGoroutine()-before)/n - 1; got > mostOfGoroutines {
		t.Errorf("got %.2f goroutines an open stream; want at most %d", got, mostOfGoroutines)
	}
	close(next)
}
