package main

import "time"

// A work is one kind of load.
type work struct {
	name   string
	body   string // of each request
	model  string // that answers it
	calls  int    // measured at full speed
	paced  int    // measured for latency, at rate
	rate   int    // calls a second
	events int    // of a stream
	window time.Duration

	// Of a work that shows what does not add to the cost of another one, which only
	// targets with sessions have.
	base   string // the other work; "" is none
	others int    // sessions that are registered and make no calls
	turns  int    // that each session has already

	anew bool // each call begins another conversation; otherwise only its last message is new

	streams int // at a time
	warmUps int // before anything is measured

	known bool // each session has made the call before, so that who records has little to add
}

const (
	workers    = 16  // connections at full speed
	streams    = 100 // sparse streams
	eventRate  = 100 // a second each
	latencyCap = 8   // connections for paced calls
)

const (
	nameSmall  = "json-2k"
	nameStream = "stream-sparse"
	nameOpen   = "open-streams" // whose memory is measured, not their cost
)

func works(quick bool) []work {
	scale := 1
	window := 4 * time.Second
	if quick {
		scale, window = 10, time.Second
	}
	json := func(name string, size, calls, paced, rate int) work {
		return work{
			name: name, body: requestBody(size, "json-2k", false, false), model: "json-2k",
			calls: calls / scale, paced: paced / scale, rate: rate, warmUps: warmUps,
		}
	}
	anew := func(w work, size int) work {
		w.name, w.body, w.anew = w.name+"-anew", requestBody(size, w.model, false, true), true
		return w
	}
	events := eventRate * int(window/time.Second+3)
	paced := pacedModel(events, eventRate)
	many := json("json-2k-100k-sessions", 2<<10, 12000, 2000, 1000)
	many.base, many.others = nameSmall, 100000/scale
	long := json("json-2k-2000-turns", 2<<10, 12000, 2000, 1000)
	long.base, long.turns = nameSmall, 2000/scale
	return []work{
		json(nameSmall, 2<<10, 12000, 2000, 1000),
		many, long,
		json("json-64k", 64<<10, 4000, 600, 300),
		json("json-1m", 1<<20, 400, 60, 30),
		anew(json("json-64k", 64<<10, 1000, 100, 300), 64<<10),
		anew(json("json-1m", 1<<20, 200, 20, 30), 1<<20),
		{
			name: nameStream, body: requestBody(2<<10, paced, true, false), model: paced, events: events, window: window,
			streams: streams, warmUps: warmUps,
		},
	}
}
