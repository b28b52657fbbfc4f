package scripted

import (
	"iter"
	"net/http"
	"time"
)

// Script says what one answer looks like on the wire and when its parts are sent. The zero value is an empty 200.
// A Script may be shared: playing it does not change it.
type Script struct {
	Status int         // 0 is 200
	Header http.Header // sent as it is; a Date is added by net/http as every server does

	// Body is the exact body. Pieces, when set, is used instead of it and sent as it comes.
	Body   []byte
	Pieces iter.Seq[[]byte]

	// Cut says in which pieces Body is written. Every piece is flushed by itself unless Cut is Whole.
	Cut Cut
	// Limit, when positive, is how many pieces are sent before End happens.
	Limit int
	// Length is the Content-Length that is announced: 0 is the true one for a Whole body and none (chunked) otherwise,
	// negative is none, and anything else is announced whether true or not.
	Length int64
	// End is what happens after the last piece.
	End End

	// Upload says how much of the request's body is read before the answer begins.
	Upload Upload
	// UploadGap passes before each read of the request's body when Upload is Slowly.
	UploadGap time.Duration

	// Delay passes before the status line. HoldHeader, when set, must be received from (or be closed) before it.
	Delay      time.Duration
	HoldHeader <-chan struct{}
	// NoHeader goes straight to End without sending a byte; a Clean end is then an Abort.
	NoHeader bool
	// FlushHeader sends the header by itself, before the first piece is due.
	FlushHeader bool
	// Gap passes before every piece but the first. Step, when set, must be received from before every piece.
	Gap  time.Duration
	Step <-chan struct{}
}

// Cut is how a body is divided into writes.
type Cut int

// The ways to cut a body.
const (
	Whole  Cut = iota // one write
	Events            // one write for each server-sent event, blank line included
	Bytes             // one write for each byte
)

// End is how an answer ends.
type End int

// The ways for an answer to end.
const (
	Clean End = iota // the body ends as HTTP says it should
	Abort            // the connection is closed (FIN) with the body unfinished
	Reset            // the connection is reset (RST)
	Hang             // nothing more is sent until the client leaves
)

// Upload is how the request's body is read.
type Upload int

// The ways to read a request's body.
const (
	ReadAll  Upload = iota // read to its end before the answer begins
	Slowly                 // the same, 16 KiB at a time with UploadGap before each
	ReadPart               // answer as soon as the script is known, with the body still on its way
)

// Gate lets the pieces of a script pass one at a time; its channel goes into [Script.Step].
type Gate chan struct{}

// NewGate makes a closed gate.
func NewGate() Gate { return make(Gate) }

// Step lets one piece pass. It returns when the script has taken the step, so it blocks until a script waits for it.
func (g Gate) Step() { g <- struct{}{} }

// Open lets everything pass from now on. It may be called once, and no Step after it.
func (g Gate) Open() { close(g) }
