package proxy

import (
	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/sse"
	"github.com/muxproxy/muxproxy/registry"
)

// replayChunk is how much of a stream is made before it is written.
const replayChunk = 64 << 10

// answerAgain answers with a turn that was recorded: the bytes that the harness
// saw, or would have seen, made again from those that the upstream sent.
func (c *call) answerAgain(claimed claim, turn *registry.Turn) error {
	c.replay, c.turn, c.stream = metrics.ReplayReplayed, turn, turn.Stream
	c.upstream, c.replica, c.upstreamRequestID = turn.Upstream, turn.Replica, turn.UpstreamRequestID
	h := c.writer.Header()
	if turn.UpstreamRequestID != "" {
		h[upstreamRequestIDHeader] = []string{turn.UpstreamRequestID}
	}
	added := dialect.AddedOf(turn.Added)
	if !turn.Stream {
		h.Set("Content-Type", "application/json")
		c.handedOver(claimed, c.deliver(turn.Status, c.dialect.Visible(turn.Response(), added)))
		return nil
	}
	request, err := c.dialect.Parse(turn.Request(), nil)
	if err != nil {
		return err
	}
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	streamHeader(h)
	if c.status == 0 {
		c.begin(turn.Status)
	}
	c.end = "done"
	err = c.writeVisible(turn.Response(), c.dialect.Stream(request, added, dialect.Conversation{}))
	if err != nil {
		c.lost(err)
	}
	c.handedOver(claimed, err == nil)
	return nil
}

// writeVisible writes of a recorded stream what its harness sees.
func (x *exchange) writeVisible(recorded []byte, events dialect.Stream) error {
	var scanner sse.Scanner
	out := make([]byte, 0, min(len(recorded), 2*replayChunk))
	for len(recorded) > 0 {
		n := scanner.Next(recorded)
		if n == 0 {
			n = len(recorded) // some servers leave out the last blank line
		}
		event := recorded[:n]
		action, replacement := events.Event(event)
		switch action {
		case dialect.Forward:
			out = append(out, event...)
		case dialect.Hold:
			out = append(out, recorded...) // which is all that was held
			n = len(recorded)
		default:
			out = append(out, replacement...)
		}
		recorded = recorded[n:]
		if len(out) >= replayChunk {
			if err := x.write(out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
	return x.write(out)
}
