package proxy_test

import (
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// A parted body is sent in two parts.
type parted struct {
	body string
	part int
	sent func() // called when the first part has been sent; it returns when the rest may be
	read int
}

func (p *parted) Read(b []byte) (int, error) {
	if p.read == p.part {
		p.sent()
	}
	end := len(p.body)
	if p.read < p.part {
		end = p.part
	}
	if p.read == end {
		return 0, io.EOF
	}
	n := copy(b, p.body[p.read:end])
	p.read += n
	return n, nil
}

const (
	firstHeld = 64 << 10            // what a body begins with
	some      = firstHeld * 17 / 16 // more than that
)

// framed sends a body of an announced length or, if not, in chunks.
func (r *rollout) framed(body io.Reader, size int, announced bool) *http.Request {
	req := r.chunked(chatPath, body)
	if announced {
		req.ContentLength = int64(size)
	}
	return req
}

// Bodies of which each has come in part do not wait for each other when there is
// room for one after the other.
func TestBodiesThatHavePartsOfTheRoomAreAllReadToTheirEnds(t *testing.T) {
	for _, announced := range []bool{true, false} {
		bubble(t, func(s *stack) {
			r := s.register(registry.Spec{})
			const size, count = 900 << 10, 4
			begun := make(chan struct{})
			var calls sync.WaitGroup
			began := time.Now()
			for range count {
				calls.Go(func() {
					body := &parted{body: bodyOf(size), part: some, sent: func() { <-begun }}
					if got := s.do(r.framed(body, size, announced)); got.StatusCode != http.StatusOK {
						s.t.Errorf("announced %t: status %d, %s", announced, got.StatusCode, got.body)
					}
				})
			}
			synctest.Wait()
			close(begun)
			calls.Wait()
			if took := time.Since(began); took != 0 {
				s.t.Errorf("announced %t: it took %s", announced, took)
			}
			r.wantTurns(count)
			s.wantIdle()
		}, func(s *settings) { s.proxy.MaxInflightBytes = 1 << 20 })
	}
}

func TestBodiesThatHavePartsOfTheRoomAreAllReadThroughSockets(t *testing.T) {
	s := newStack(t, func(s *settings) { s.proxy.MaxInflightBytes, s.proxy.AdmitTimeout = 1<<20, 30*time.Second })
	r := s.register(registry.Spec{})
	const size, count = 900 << 10, 6
	var begun, calls sync.WaitGroup
	begun.Add(count)
	for i := range count {
		calls.Go(func() {
			body := &parted{body: bodyOf(size), part: some, sent: func() { begun.Done(); begun.Wait() }}
			if got := s.do(r.framed(body, size, i%4 > 0)); got.StatusCode != http.StatusOK {
				t.Errorf("body %d: status %d, %s", i, got.StatusCode, got.body)
			}
		})
	}
	calls.Wait()
	r.wantTurns(count)
}

// Whatever comes together, all that fits by itself is answered, as soon as it has
// come, and never is more held than there is room for.
func TestBodiesOfAllSizesShareTheRoom(t *testing.T) {
	const room = 1 << 20
	for seed := range uint64(4) {
		bubble(t, func(s *stack) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
			r := s.register(registry.Spec{})
			var calls sync.WaitGroup
			began := time.Now()
			for i := range 40 {
				size := 200 + random.IntN(1<<(8+random.IntN(12)))
				announced, zipped := random.IntN(3) > 0, random.IntN(5) == 0
				calls.Go(func() {
					req := r.framed(&watched{strings.NewReader(bodyOf(size)), s}, size, announced)
					if zipped {
						req = r.packed(chatPath, pack(bodyOf(size)))
					}
					if got := s.do(req); got.StatusCode != http.StatusOK {
						s.t.Errorf("seed %d, body %d of %d bytes, announced %t, zipped %t: status %d, %s", seed, i, size, announced, zipped, got.StatusCode, got.body)
					}
				})
			}
			calls.Wait()
			if took := time.Since(began); took != 0 {
				s.t.Errorf("seed %d: it took %s", seed, took)
			}
			s.wantIdle()
			if held := s.proxy.BodyBytes(); held != 0 {
				s.t.Errorf("seed %d: %d bytes are held by nothing", seed, held)
			}
		}, func(s *settings) { s.proxy.MaxInflightBytes, s.proxy.MaxBodyBytes = room, room })
	}
}

// watched looks at what is held whenever more of it is sent.
type watched struct {
	io.Reader
	stack *stack
}

func (w *watched) Read(b []byte) (int, error) {
	if held := w.stack.proxy.BodyBytes(); held > 1<<20 {
		w.stack.t.Errorf("%d bytes are held", held)
	}
	return w.Reader.Read(b)
}

// A sender that is slow keeps others waiting for a while, not for as long as it sends.
func TestSlowUploadsOfUnknownLengthDoNotHoldUpOthersForLong(t *testing.T) {
	bubble(t, func(s *stack) {
		slow, r := s.register(registry.Spec{}), s.register(registry.Spec{})
		faster := make(chan struct{})
		var uploads sync.WaitGroup
		for range 2 {
			uploads.Go(func() {
				body := bodyOf(200 << 10)
				first := strings.NewReader(body[:150<<10])
				if got := s.do(slow.framed(io.MultiReader(first, &idling{faster, body[150<<10:]}), 0, false)); got.StatusCode != http.StatusOK {
					s.t.Errorf("a slow upload: status %d, %s", got.StatusCode, got.body)
				}
			})
		}
		synctest.Wait()
		for range 3 {
			began := time.Now()
			if got := s.do(r.chunked(chatPath, strings.NewReader(bodyOf(400<<10)))); got.StatusCode != http.StatusOK || time.Since(began) > 20*time.Second {
				s.t.Errorf("beside slow uploads: status %d after %s, %s", got.StatusCode, time.Since(began), got.body)
			}
			began = time.Now()
			for _, size := range []int{200, 60 << 10, 300 << 10} {
				if got := s.do(r.request(http.MethodPost, chatPath, bodyOf(size))); got.StatusCode != http.StatusOK || time.Since(began) > 0 {
					s.t.Errorf("%d bytes beside slow uploads: status %d after %s", size, got.StatusCode, time.Since(began))
				}
			}
		}
		close(faster)
		uploads.Wait()
		s.wantIdle()
	}, func(s *settings) { s.proxy.MaxInflightBytes = 1 << 20 })
}

// idling sends a byte now and then until it need not any more.
type idling struct {
	until chan struct{}
	rest  string
}

func (i *idling) Read(b []byte) (int, error) {
	if i.rest == "" {
		return 0, io.EOF
	}
	n := 1
	select {
	case <-i.until:
		n = len(b)
	case <-time.After(50 * time.Second):
	}
	n = copy(b[:n], i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// What is announced and does not come takes no room from what comes.
func TestUploadsThatStandStillDoNotHoldWhatTheyAnnounced(t *testing.T) {
	bubble(t, func(s *stack) {
		slow, r := s.register(registry.Spec{}), s.register(registry.Spec{})
		stay := make(chan struct{})
		var uploads sync.WaitGroup
		for range 8 {
			uploads.Go(func() {
				body := &parted{body: bodyOf(1 << 20), part: some, sent: func() { <-stay }}
				req := slow.framed(body, 32<<20, true)
				if res, err := s.client.Do(req); err == nil {
					res.Body.Close()
					s.t.Errorf("a part of a body was answered with %d", res.StatusCode)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		for _, announced := range []bool{true, false} {
			body := bodyOf(3 << 20)
			if got := s.do(r.framed(strings.NewReader(body), len(body), announced)); got.StatusCode != http.StatusOK || time.Since(began) > 0 {
				s.t.Errorf("announced %t: status %d after %s, %s", announced, got.StatusCode, time.Since(began), got.body)
			}
		}
		close(stay)
		uploads.Wait()
	}, func(s *settings) { s.proxy.MaxInflightBytes, s.proxy.MaxBodyBytes = 64<<20, 32<<20 })
}

// Who waits is served in order, also if what came later is smaller.
func TestBodiesThatWaitAreReadInOrder(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Script("silent", hanging())
		r := s.register(registry.Spec{})
		// A stream's request is held until the upstream's header.
		hold := func(size int) (release func()) {
			body := strings.TrimSuffix(strings.Replace(bodyOf(size), "openai", "silent", 1), "}") + `,"stream":true}`
			return r.leaveOnce(abandonable(r.request(http.MethodPost, chatPath, body)))
		}
		first := hold(900)
		second := hold(700)
		var calls sync.WaitGroup
		for _, size := range []int{600, 200} {
			calls.Go(func() {
				if got := s.do(r.request(http.MethodPost, chatPath, bodyOf(size))); got.StatusCode != http.StatusOK {
					s.t.Errorf("status %d, %s", got.StatusCode, got.body)
				}
			})
			synctest.Wait()
		}
		wantUp := func(n int) {
			synctest.Wait()
			if got := len(s.model.Requests()); got != n {
				s.t.Errorf("%d requests went up, want %d", got, n)
			}
		}
		wantUp(1)
		first()
		wantUp(2)
		second()
		calls.Wait()
		wantUp(4)
		held := hold(5000)
		if got := s.proxy.BodyBytes(); got != 1000 {
			s.t.Errorf("a body larger than all the room holds %d bytes", got)
		}
		held()
		s.wantIdle()
		if got := s.proxy.BodyBytes(); got != 0 {
			s.t.Errorf("%d bytes are held by nothing", got)
		}
	}, func(s *settings) { s.proxy.MaxInflightBytes = 1000 })
}

// A body that has much of the room and waits for others to be read is not overtaken
// again and again by such that have just come.
func TestBodyThatWaitsWithAPartIsNotOvertaken(t *testing.T) {
	bubble(t, func(s *stack) {
		r := s.register(registry.Spec{})
		var calls, large sync.WaitGroup
		send := func(calls *sync.WaitGroup, size, part, count int, announced bool) (goOn func()) {
			wait := make(chan struct{})
			for range count {
				calls.Go(func() {
					body := &parted{body: bodyOf(size), part: part, sent: func() { <-wait }}
					if got := s.do(r.framed(body, size, announced)); got.StatusCode != http.StatusOK {
						s.t.Errorf("%d bytes: status %d, %s", size, got.StatusCode, got.body)
					}
				})
			}
			synctest.Wait()
			return func() { close(wait); synctest.Wait() }
		}
		began := time.Now()
		growOn := send(&large, 5*firstHeld, 7*firstHeld/2, 1, false) // has 4 of 16
		var before []func()
		for range 8 {
			before = append(before, send(&calls, 3*firstHeld, firstHeld/2, 1, true))
		}
		growOn() // to 8, with which none of those before could be read
		after := send(&calls, 3*firstHeld, firstHeld/2, 8, true)
		for _, goOn := range before {
			goOn()
		}
		large.Wait()
		if took := time.Since(began); took != 0 {
			s.t.Errorf("it waited for %s", took)
		}
		after()
		calls.Wait()
		s.wantIdle()
	}, func(s *settings) { s.proxy.MaxInflightBytes = 16 * firstHeld })
}

// ADMIT_TIMEOUT is for all that a call waits for, one after the other.
func TestTimeThatABodyWaitedForRoomIsOfTheTimeToBeAdmitted(t *testing.T) {
	bubble(t, func(s *stack) {
		s.model.Script("silent", hanging())
		held := strings.TrimSuffix(strings.Replace(bodyOf(900), "openai", "silent", 1), "}") + `,"stream":true}`
		other := s.register(registry.Spec{})
		gone := other.leaveOnce(abandonable(other.request(http.MethodPost, chatPath, held)))
		r := s.register(registry.Spec{Limits: registry.Limits{MaxInflight: new(1)}})
		defer r.leaveOnce(abandonable(r.request(http.MethodPost, chatPath, chatBody("silent", ""))))()
		time.AfterFunc(20*time.Second, gone)
		began := time.Now()
		r.do(r.request(http.MethodPost, chatPath, bodyOf(300))).wantError(s.t, http.StatusTooManyRequests, "rate_limited")
		if took := time.Since(began); took != 30*time.Second {
			s.t.Errorf("it was refused after %s", took)
		}
	}, func(s *settings) {
		s.proxy.MaxInflightBytes, s.proxy.AdmitTimeout, s.registry.AdmitTimeout = 1000, 30*time.Second, 30*time.Second
	})
}
