package proxy_test

import (
	"bytes"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/proxy"
	"github.com/muxproxy/muxproxy/registry"
)

func TestMemoryThatCameBackLastIsGivenFirst(t *testing.T) {
	var pool proxy.BodyPool
	first, recycleFirst := pool.Body(100 << 10)
	second, recycleSecond := pool.Body(128 << 10)
	recycleSecond()
	recycleFirst()
	for _, want := range [][]byte{first, second} {
		if got, _ := pool.Body(120 << 10); &got[0] != &want[0] {
			t.Error("it was not what came back last")
		}
	}
	if got := pool.Unused(); got != 0 {
		t.Errorf("%d bytes are unused, want none", got)
	}
}

func TestMemoryIsOneBodysAtATime(t *testing.T) {
	var pool proxy.BodyPool
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for range 300 {
				body, recycle := pool.Body(5000 + i)
				for j := range body {
					body[j] = byte(i)
				}
				if other := bytes.Trim(body, string([]byte{byte(i)})); len(other) > 0 {
					t.Errorf("another wrote %d bytes", len(other))
				}
				recycle()
			}
		})
	}
	running.Wait()
}

func TestOnlySomeUnusedMemoryIsKept(t *testing.T) {
	var pool proxy.BodyPool
	const size, most = 4 << 20, 64 << 20
	var recycles []func()
	for range most/size + 4 {
		_, recycle := pool.Body(size)
		recycles = append(recycles, recycle)
	}
	for _, recycle := range recycles {
		recycle()
	}
	if got := pool.Unused(); got > most || got < most-2*size {
		t.Errorf("%d MiB are kept, want about %d", got>>20, most>>20)
	}
}

func TestMemoryThatIsNotNeededIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool proxy.BodyPool
		const size = 1 << 20
		_, recycleFirst := pool.Body(size)
		_, recycleSecond := pool.Body(size)
		_, recycleSmall := pool.Body(size / 16)
		recycleFirst()
		recycleSecond()
		recycleSmall()
		for range 10 { // one of them is needed again and again
			time.Sleep(3 * time.Second)
			_, recycle := pool.Body(size)
			recycle()
		}
		if got := pool.Unused(); got < size || got >= size+size/16 {
			t.Errorf("%d bytes are kept where one body of %d is needed", got, size)
		}
		time.Sleep(15 * time.Second)
		if got := pool.Unused(); got != 0 {
			t.Errorf("%d bytes are kept after a while of silence", got)
		}
	})
}

// An answer may take minutes; what its request was read into serves others meanwhile.
func TestMemoryOfABodyIsGivenBackOnceItIsWritten(t *testing.T) {
	bubble(t, func(s *stack) {
		s.slowModels()
		r := s.register(registry.Spec{})
		for _, model := range []string{"slow-json", "slow-stream"} {
			pass(time.Minute) // until nothing is unused
			done := make(chan struct{})
			body := chatBody(model, usageAsked+`,"long":"`+strings.Repeat("a", 1<<20)+`"`)
			go func() {
				defer close(done)
				r.do(r.request(http.MethodPost, chatPath, body))
			}()
			pass(100 * time.Millisecond)
			if got := s.proxy.UnusedBodies(); got < len(body) {
				t.Errorf("%s: %d bytes are unused while the answer is waited for, want that of the body", model, got)
			}
			<-done
		}
	})
}
