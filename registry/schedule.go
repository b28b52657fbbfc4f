package registry

import (
	"container/heap"
	"sync"
	"time"
)

// schedule says when which entry has to be looked at. An alarm may ring too early, never too late: what moves a deadline back leaves
// the alarm where it is, so that a call, which renews its session's lease, costs nothing here.
type schedule struct {
	mu     sync.Mutex
	alarms alarms
	wake   chan struct{} // has one token when the first alarm may have changed
}

// alarm is one entry's place in the schedule. The zero value is not set.
type alarm struct {
	at    time.Time
	owner *entry
	place int // index in alarms plus one, 0 when it is not there
}

// set makes a ring at the given time, or earlier if it is set already.
func (s *schedule) set(a *alarm, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.place == 0:
		a.at = at
		heap.Push(&s.alarms, a)
	case at.Before(a.at):
		a.at = at
		heap.Fix(&s.alarms, a.place-1)
	}
	if s.alarms[0] == a {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (s *schedule) clear(a *alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.place != 0 {
		heap.Remove(&s.alarms, a.place-1)
	}
}

// next removes and returns the first alarm if it is due. Otherwise it returns how long that is from now.
func (s *schedule) next(now time.Time) (due *alarm, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.alarms) == 0 {
		return nil, time.Hour
	}
	if wait := s.alarms[0].at.Sub(now); wait > 0 {
		return nil, wait
	}
	return heap.Pop(&s.alarms).(*alarm), 0
}

// alarms is a heap, the earliest first.
type alarms []*alarm

func (h *alarms) Len() int           { return len(*h) }
func (h *alarms) Less(i, j int) bool { return (*h)[i].at.Before((*h)[j].at) }

func (h *alarms) Swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i+1, j+1
}

func (h *alarms) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.place = len(*h)
}

func (h *alarms) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.place = 0
	return a
}
