// Package dialect knows the wire formats that harnesses speak: which fields of
// a request muxproxy reads and overrides, when a response is complete, what it
// used, which conversation it continues, and how an error looks. It never
// translates one format into another, and it decodes nothing that it does not
// need: bodies stay the bytes they were.
//
// Every Dialect is safe for concurrent use; a Stream belongs to one call.
package dialect

import (
	"encoding/json"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// A Dialect is one wire format.
type Dialect interface {
	// Name is the format's name as traces and metrics show it.
	Name() string

	// Parse reads a request body of a session, of which it says what was sent
	// before; nil is nothing. The error is a *RequestError.
	Parse(body []byte, sent Sent) (*Request, error)

	// Override edits the request in place of its bytes as o asks and says
	// what it added for muxproxy's own use, so that the answer can be freed
	// of it again. The error is a *RequestError.
	Override(r *Request, o Overrides) (Added, error)

	// Conversation fingerprints the messages of a request.
	Conversation(r *Request) Conversation

	// Response reads a whole JSON answer. The error is a *rawjson.SyntaxError
	// or rawjson.ErrNotObject for a body that is no answer of this dialect.
	Response(body []byte, c Conversation) (Result, error)

	// Visible is what the harness sees of a whole JSON answer to a request:
	// the answer without what only added caused. It may be answer itself.
	Visible(answer []byte, added Added) []byte

	// Stream follows the streamed answer to a request.
	Stream(r *Request, added Added, c Conversation) Stream

	// ErrorBody is an error of muxproxy's own as a JSON body.
	ErrorBody(e Error) []byte

	// ErrorEvent is an error of muxproxy's own as one whole server-sent event.
	ErrorEvent(e Error) []byte

	// Assemble merges a recorded stream into the JSON response it amounts to.
	Assemble(stream []byte) ([]byte, error)

	// Inspect finds what a trace shows of the choices of a response, which is
	// a JSON body or, assembled, what a stream amounts to.
	Inspect(response []byte) Details
}

// Sent knows what a session has sent before, as a [*registry.Session] does.
type Sent interface {
	Known(field string, text []byte) registry.Known
}

// A Request is a parsed request body.
type Request struct {
	Object rawjson.Object // the body and the index of its top level
	Model  string         // as the harness named it
	Stream bool           // the harness asked for a stream

	// References are the ids of what the request rests on without sending it.
	References []Reference

	choices int               // how many choices it asked for
	members [8]rawjson.Member // of Object, as it was parsed, if there are no more

	known registry.Known // of the list that is the conversation

	memory []byte // see Own
	at     int
}

// A Reference names a response, or a part of one, that the provider stores.
type Reference struct {
	Param     string // the field that it stands in
	ID        string
	Continues bool // the request goes on where that response ended
}

// Choices is how many choices the harness asked for.
func (r *Request) Choices() int { return r.choices }

// Body is the request as it stands, overrides included.
func (r *Request) Body() []byte { return r.Object.Src }

// Forget lets go of the body.
func (r *Request) Forget() {
	r.Object = rawjson.Object{}
	clear(r.members[:])
}

// Known is how the request's conversation begins like that of an earlier one.
func (r *Request) Known() registry.Known { return r.known }

// Own lets Override use the memory in which the body begins at the given place.
// After an override that adds nothing for muxproxy's own use the request as it was
// parsed is then gone, and so is what aliases it.
func (r *Request) Own(memory []byte, at int) { r.memory, r.at = memory, at }

// edit makes the edits of an Override. A request to which something is added may be
// sent again without that, and so is left as it was.
func (r *Request) edit(edits []rawjson.Edit, added Added) {
	switch {
	case len(edits) == 0:
	case r.memory == nil || added != (Added{}):
		r.Object = r.Object.With(edits)
	default:
		r.Object = r.Object.WithIn(r.memory, r.at, edits)
		r.memory = nil // the body begins elsewhere now
	}
}

// A Stream follows one streamed response, event by event.
type Stream interface {
	// Event takes the next whole event, which must not change as long as the
	// stream is followed, and says what the client gets in its place. The
	// replacement is valid until the next call.
	Event(event []byte) (Action, []byte)

	// Complete reports whether the response would be whole if its body ended
	// cleanly now.
	Complete() bool

	// Terminal reports whether the terminal event has been seen, after which
	// even a broken connection takes nothing away.
	Terminal() bool

	// Failure is the error that the upstream has reported so far, nil if none.
	Failure() *Failure

	// Result is what has been seen so far.
	Result() Result
}

// Action is what happens to an event on its way to the client.
type Action int

// The actions.
const (
	Forward Action = iota // as it came
	Replace               // by the replacement
	Drop                  // not at all: muxproxy asked for it
	Hold                  // the terminal event or one after it: once the turn is committed
	Abort                 // not at all: the generation was aborted, the stream must break
)

// A Result is what a response amounts to.
type Result struct {
	Model   string
	Usage   *registry.Usage // nil when the upstream did not say
	Choices []registry.Choice
	IDs     []string // under which the provider may store it and its parts

	// PromptTokenIDs is where the answer has them, nil if it does not: they
	// begin as those of the turn before do.
	PromptTokenIDs json.RawMessage

	Failure *Failure // the upstream answered with an error in the body
	Aborted bool     // a choice ended with finish_reason "abort"
}

// A Failure is an error that an upstream reported inside a 200.
type Failure struct{ Message string }

// Details is what a trace shows of a response beside its bytes. All values are
// raw JSON, nil when the response has none.
type Details struct {
	PromptTokenIDs json.RawMessage
	Choices        []ChoiceDetails
}

// ChoiceDetails belongs to one choice of Details.
type ChoiceDetails struct {
	Index              int
	FinishReason       string
	CompletionTokenIDs json.RawMessage
	CompletionLogprobs json.RawMessage
}

// ByName gives the dialect of that name.
func ByName(name string) (Dialect, bool) {
	switch name {
	case Chat{}.Name():
		return Chat{}, true
	case Completions{}.Name():
		return Completions{}, true
	case Responses{}.Name():
		return Responses{}, true
	case Messages{}.Name():
		return Messages{}, true
	default:
		return nil, false
	}
}
