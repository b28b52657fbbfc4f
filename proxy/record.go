package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/muxproxy/muxproxy/metrics"
	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// An exchange is one request of the data plane and what becomes of it. It is
// filled along the way and emitted once, by finish, as a log line and metrics.
// It belongs to the goroutine that serves the request.
type exchange struct {
	proxy   *Proxy
	writer  http.ResponseWriter
	control http.ResponseController
	renewed time.Time // the write deadline
	request *http.Request
	early   *earlyWriter // the writer where answers may begin early, else nil

	route      metrics.Route
	dialect    dialect.Dialect
	requestID  string
	requestIDs [1]string // the same as a header's values
	started    time.Time

	secret    string // as it was sent; "" is none
	sessionID string
	stream    bool // the answer is a stream
	status    int  // answered; 0 is nothing yet
	outcome   metrics.Outcome
	err       error  // what went wrong
	end       string // why a call's answer ended
	broken    bool   // the connection must break: the answer is not whole
	silent    bool   // the answer is held by a dialogue, which sees to keepalives and delivery
	unread    bool   // the request has a body and nobody has begun to read it

	incoming          upload    // the request's body
	held              heldBytes // by it
	memory            bodyMemory
	last              [1]byte   // see readLimited
	length            [1]string // of the answer, as a header's values
	bytesIn, bytesOut int64

	admission  time.Duration // waiting for limits
	upload     time.Duration // the request's body arriving
	dispatched time.Time     // handed to an upstream; zero is never
	answered   time.Time     // the last byte from the upstream
	delivery   time.Duration // writing what was held until then

	upstream, replica, upstreamRequestID string
	firstEvent                           time.Duration
	turn                                 *registry.Turn

	replay  metrics.Replay // what became of a retry; "" is that it was none
	claim   claim          // of the attempt that the request is itself, if it is one
	outlet  *outlet        // the writer of a call that may be retried, else nil
	retried outlet         // what it points to
}

func newExchange(p *Proxy, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{
		proxy: p, writer: w, control: *http.NewResponseController(w), request: r,
		dialect: dialect.Chat{}, route: metrics.RouteOther, started: time.Now(),
		outcome: metrics.OutcomeOK, requestID: r.Header.Get(requestIDHeader), unread: r.ContentLength != 0,
		secret: bearer(r.Header),
	}
	if !validRequestID(x.requestID) || x.holdsSecret(x.requestID) {
		x.requestID = newRequestID()
	}
	x.requestIDs[0] = x.requestID
	return x
}

// newRequestID makes an id of 128 random bits. It is no secret.
func newRequestID() string {
	var bits [16]byte
	binary.LittleEndian.PutUint64(bits[:8], rand.Uint64()) //nolint:gosec // as above
	binary.LittleEndian.PutUint64(bits[8:], rand.Uint64()) //nolint:gosec // as above
	id := [36]byte{'r', 'e', 'q', '_'}
	hex.Encode(id[4:], bits[:])
	return string(id[:])
}

// begin sends the status line with the first byte that follows.
func (x *exchange) begin(status int) {
	x.status = status
	x.boundRest()
	x.writer.WriteHeader(status)
	if o := x.outlet; o != nil && o.direct.Load() {
		x.writer, x.control = o.client, *http.NewResponseController(o.client) // as o does from here on
	}
}

// finish emits the record, in every case, and breaks the connection of an
// answer that was begun and cannot be ended well: HTTP has no other way to say
// that a body is not whole.
func (x *exchange) finish() {
	panicked := recover()
	x.endEarly()
	if x.claim.attempt != nil {
		x.conclude(panicked != nil)
	}
	if x.status != 0 {
		x.renewWriteDeadline() // for what the server still has to write after the handler
	}
	if panicked != nil {
		x.outcome = metrics.OutcomeAborted
	}
	x.emit(panicked)
	if panicked != nil {
		panic(panicked)
	}
	if x.broken {
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) emit(panicked any) {
	duration := time.Since(x.started)
	overhead := x.overhead(duration)
	x.proxy.options.Metrics.Request(metrics.RequestRecord{
		Route: x.route, Code: x.status, Outcome: x.outcome, Stream: x.stream,
		Duration: duration, Overhead: overhead,
	})
	if x.replay != "" {
		x.proxy.options.Metrics.Replay(x.replay)
	}
	line := x.proxy.options.Logger.WithLevel(x.level(panicked))
	if panicked != nil {
		line.Any("panic", panicked)
	}
	line.Str("request_id", x.requestID).Str("method", x.request.Method).Str("route", string(x.route)).
		Int("status", x.status).Str("outcome", string(x.outcome)).Bool("stream", x.stream).
		Int64("bytes_in", x.bytesIn).Int64("bytes_out", x.bytesOut).
		Float64("seconds", duration.Seconds())
	optional(line, "session", x.sessionID)
	optional(line, "end", x.end)
	optional(line, "replay", string(x.replay))
	optional(line, "upstream", x.upstream)
	optional(line, "replica", x.replica)
	optional(line, "upstream_request_id", x.upstreamRequestID)
	if x.admission > time.Millisecond {
		line.Float64("admission_seconds", x.admission.Seconds())
	}
	if x.firstEvent > 0 {
		line.Float64("first_event_seconds", x.firstEvent.Seconds())
	}
	if overhead > 0 {
		line.Float64("overhead_seconds", overhead.Seconds())
	}
	if x.turn != nil {
		line.Int("turn", x.turn.Index)
		if u := x.turn.Usage; u != nil {
			line.Int64("input_tokens", u.InputTokens).Int64("output_tokens", u.OutputTokens)
		}
	}
	line.Err(x.err).Msg("request")
}

// level is what the outcome deserves: health checks are noise, and what a
// person should look at stands out.
func (x *exchange) level(panicked any) zerolog.Level {
	switch {
	case panicked != nil:
		return zerolog.ErrorLevel
	case x.route == metrics.RouteHealth || x.route == metrics.RouteRoot:
		return zerolog.DebugLevel
	case x.outcome == metrics.OutcomeOK || x.outcome == metrics.OutcomeRefused ||
		x.outcome == metrics.OutcomeClientDisconnected || x.outcome == metrics.OutcomeCancelled:
		return zerolog.InfoLevel
	default:
		return zerolog.WarnLevel
	}
}

// overhead is what muxproxy itself added to a call: all the time that it waited
// neither for the request, nor for a limit, nor for the upstream, nor for the
// client to take the end of the answer.
func (x *exchange) overhead(total time.Duration) time.Duration {
	if x.dispatched.IsZero() || x.answered.IsZero() {
		return 0
	}
	return total - x.admission - x.upload - x.answered.Sub(x.dispatched) - x.delivery
}

func optional(line *zerolog.Event, key, value string) {
	if value != "" {
		line.Str(key, value)
	}
}
