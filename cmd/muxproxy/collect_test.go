package main

import "testing"

func TestGarbageIsCollectedWhenItIsMuchOfTheHeap(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live, objects uint64
		want          bool
	}{
		{0, 10 * mb, false},
		{0, 20 * mb, true},
		{10 * mb, 20 * mb, false},
		{10 * mb, 30 * mb, true},
		{800 * mb, 850 * mb, false},
		{800 * mb, 950 * mb, true},
		{20 * mb, 10 * mb, false}, // freed since
	} {
		if got := (heapState{live: c.live, objects: c.objects}).worthIt(); got != c.want {
			t.Errorf("%d MB live, %d MB now: got %t", c.live/mb, c.objects/mb, got)
		}
	}
}
