package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/proxy/rawjson"
	"github.com/muxproxy/muxproxy/registry"
)

// A dialogue is a request of a harness whose user is simulated: a model call, what
// the user says to it, the next model call, and so on. Each is a call with limits
// and a turn of its own. Its answer is held until it is known to be the last,
// which is the harness's.
type dialogue struct {
	*call  // the harness's request, which is not admitted itself
	retry  retry
	user   *registry.Hook
	asked  rawjson.Object // the request as the harness sent it
	answer *heldAnswer    // to the last turn; nil when an attempt before this one made it
	vigil  vigil
	// open is the call of the last turn. It is closed when the next one begins or
	// the harness has its answer: a session's end waits until it is known whether
	// its turns were delivered.
	open *registry.Call
}

// userQuestion is what the user is asked for the next messages.
type userQuestion struct {
	Session  hookSession     `json:"session"`
	Turn     int             `json:"turn"` // the index of the turn that the messages end with
	Messages json.RawMessage `json:"messages"`
}

// userAnswer is what it answers: the next messages, or that there are none.
type userAnswer struct {
	Messages []json.RawMessage `json:"messages"`
	Done     bool              `json:"done"`
}

// converse serves a chat request of a session with a simulated user. It goes on
// from turn, if an attempt before this one came so far.
func (c *call) converse(life context.Context, r retry, user *registry.Hook, turn *registry.Turn) error {
	if c.request.Choices() != 1 {
		return &dialect.RequestError{Param: "n", Message: "a session with a simulated user takes one choice"}
	}
	d := &dialogue{call: c, retry: r, user: user, asked: c.request.Object, vigil: vigil{exchange: c.exchange}}
	defer d.vigil.stop()
	defer d.leave()
	ended := context.AfterFunc(c.session.Life(), func() { c.cancel(context.Cause(c.session.Life())) }) //nolint:contextcheck // the other way to end
	defer ended()

	body := c.request.Body()
	for {
		if turn != nil {
			var err error
			if body, err = d.next(life, turn); err != nil {
				return d.giveUp(err)
			}
			if body == nil {
				return d.deliver(turn)
			}
		}
		next, err := d.generate(life, body)
		switch {
		case err == nil && next == nil:
			return nil // the harness has the upstream's own error
		case err == nil:
			turn = next
			d.proxy.attempts.progressed(d.claim, turn.Index)
		case isStopped(err) && turn != nil && life.Err() == nil:
			return d.deliver(turn) // its limits end a conversation between two turns
		default:
			return d.giveUp(err)
		}
	}
}

// generate makes one model call. When it makes no turn the harness is answered with what
// came instead, or there is an error.
func (d *dialogue) generate(life context.Context, body []byte) (*registry.Turn, error) {
	request, err := d.dialect.Parse(body, d.session)
	if err != nil {
		return nil, err
	}
	held := &heldAnswer{header: make(http.Header), begun: d.vigil.begin}
	inner := &exchange{
		proxy: d.proxy, writer: held, control: *http.NewResponseController(held), request: d.exchange.request,
		route: d.route, dialect: d.dialect, requestID: d.requestID, requestIDs: d.requestIDs, secret: d.secret, sessionID: d.sessionID,
		started: d.started, outcome: d.outcome, stream: request.Stream, silent: true,
		claim: claim{attempt: &attempt{forgotten: true}}, // the attempt is the whole dialogue
	}
	d.leave()
	ctx, cancel := context.WithCancelCause(life)
	c := &call{exchange: inner, session: d.session, cancel: cancel, request: request}
	if err = c.enter(ctx, d.retry); err == nil {
		d.open = c.admitted // which cancels ctx when it is closed
		err = c.run()       //nolint:contextcheck // as in admit
	}
	d.admission += inner.admission
	d.upstream, d.replica, d.upstreamRequestID, d.firstEvent = inner.upstream, inner.replica, inner.upstreamRequestID, inner.firstEvent
	switch {
	case err != nil:
		return nil, err
	case inner.turn != nil:
		d.answer = held
		return inner.turn, nil
	case isStopped(inner.err):
		return nil, inner.err
	default:
		d.pass(inner, held)
		return nil, nil //nolint:nilnil // there is neither
	}
}

// leave closes the call of the last turn.
func (d *dialogue) leave() {
	if d.open != nil {
		d.open.Close()
		d.open = nil
	}
}

// next asks the user what it says to a turn and returns the request that goes on
// with it, or nil when the turn is the last.
func (d *dialogue) next(life context.Context, turn *registry.Turn) ([]byte, error) {
	if d.session.State() != registry.StateActive {
		return nil, nil
	}
	response, err := assembled(turn)
	if err != nil {
		return nil, err
	}
	message := firstMessage(response)
	if called := rawjson.Lookup(message, "tool_calls"); rawjson.Kind(called) == '[' && !bytes.Equal(bytes.TrimSpace(called), []byte("[]")) {
		return nil, nil // the harness runs the tools
	}
	messages, said := rawjson.Lookup(turn.Request(), "messages"), asInput(message)
	var answer userAnswer
	question := userQuestion{hookSessionOf(d.session), turn.Index, extended(messages, said)}
	if err := d.proxy.askHook(life, d.session, "", d.user, question, &answer); err != nil {
		if cause := context.Cause(life); cause != nil {
			err = cause
		}
		return nil, err
	}
	if answer.Done {
		_ = d.session.Stop(registry.ConditionUserCompleted, false) // it may have ended meanwhile
		return nil, nil
	}
	turn.SetDelivered(true) // to the one that it was for
	messages = extended(messages, append([]json.RawMessage{said}, answer.Messages...)...)
	return d.asked.Apply([]rawjson.Edit{{Key: "messages", Value: messages}}), nil
}

func (a *userAnswer) check() error {
	if a.Done {
		return nil
	}
	if len(a.Messages) == 0 {
		return errors.New(`its answer has neither "messages" nor "done": true`)
	}
	for _, message := range a.Messages {
		if rawjson.Kind(rawjson.Lookup(message, "role")) != '"' {
			return errors.New(`its answer has a message without a "role"`)
		}
	}
	return nil
}

// giveUp is an end without an answer: told in the stream if that has begun.
func (d *dialogue) giveUp(err error) error {
	d.vigil.stop()
	if d.status == 0 {
		return err
	}
	d.tell(err)
	return nil
}

// pass gives the harness what came in place of a turn.
func (d *dialogue) pass(inner *exchange, held *heldAnswer) {
	d.vigil.stop()
	d.outcome, d.err, d.end, d.broken = inner.outcome, inner.err, inner.end, inner.broken
	switch {
	case d.status != 0 && held.status != http.StatusOK:
		d.tell(unusable("the upstream answered with an error: " + http.StatusText(held.status)))
		d.outcome = inner.outcome
		return
	case d.status == 0:
		held.copyHeader(d.writer.Header())
		d.begin(held.status)
	}
	if err := d.writeEnd(held.body); err != nil {
		d.lost(err)
	}
}

// deliver gives the harness the last turn.
func (d *dialogue) deliver(turn *registry.Turn) error {
	d.vigil.stop()
	d.turn = turn
	d.proxy.attempts.answered(d.claim, turn.Index)
	if d.answer == nil {
		return d.answerAgain(d.claim, turn)
	}
	if d.status == 0 {
		d.answer.copyHeader(d.writer.Header())
		d.begin(d.answer.status)
	}
	if turn.Stream {
		d.end = "done"
	}
	var err error
	if d.left() {
		err = errClientGone
	} else {
		err = d.writeEnd(d.answer.body) // who has read it may go at once
	}
	d.ended(err == nil)
	if err != nil {
		d.lost(err)
	}
	return nil
}

func isStopped(err error) bool {
	_, ok := errors.AsType[*registry.StoppedError](err)
	return ok
}

// firstMessage is the message of a response's one choice.
func firstMessage(response []byte) []byte {
	for choice := range rawjson.Elements(rawjson.Lookup(response, "choices")) {
		return rawjson.Lookup(choice, "message")
	}
	return nil
}

// extended is a list of messages with more at its end; what was in it stays as it
// was written.
func extended(list []byte, more ...json.RawMessage) json.RawMessage {
	b := bytes.Clone(bytes.TrimRight(bytes.TrimSuffix(bytes.TrimSpace(list), []byte("]")), " \t\r\n"))
	for _, message := range more {
		b = append(append(b, ','), message...)
	}
	return append(b, ']')
}

// asInput is a message that a model has answered with as it is sent back to one.
// What else an answer has is not everywhere accepted in a request.
func asInput(message []byte) json.RawMessage {
	b := []byte(`{"role":"assistant","content":`)
	if content := rawjson.Lookup(message, "content"); content != nil {
		b = append(b, content...)
	} else {
		b = append(b, "null"...)
	}
	if refusal := rawjson.Lookup(message, "refusal"); rawjson.Kind(refusal) == '"' {
		b = append(append(b, `,"refusal":`...), refusal...)
	}
	return append(b, '}')
}
