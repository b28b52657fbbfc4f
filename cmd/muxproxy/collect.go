package main

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

// collectEvery is how long garbage may lie about.
const collectEvery = 2 * time.Second

// collectNowAndThen collects garbage where little is made. The collector runs
// when the heap has doubled, which for a daemon with thousands of silent streams
// takes minutes, while it holds up to twice the memory that it needs. A busy one
// is collected more often than this anyway.
func collectNowAndThen(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	last := heapNow()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := heapNow()
		if now.cycles == last.cycles && now.worthIt() {
			runtime.GC()
			now = heapNow()
		}
		last = now
	}
}

// heapState is how the heap stands.
type heapState struct {
	cycles  uint64 // collections so far
	live    uint64 // bytes that the last one found
	objects uint64 // bytes of these and of what came since, as far as is known
}

func heapNow() heapState {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	return heapState{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64()}
}

// worthIt says whether a collection may find enough.
func (h heapState) worthIt() bool {
	const least, share = 16 << 20, 8
	return h.objects > h.live+max(least, h.live/share)
}
