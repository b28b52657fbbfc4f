package scripted

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Responder chooses the script for a request, all of whose body has been read. It may be called by several goroutines
// at once.
type Responder func(*Request) Script

// entry is what a name stands for. Upload and gap say how the body is read, which is before respond is asked.
type entry struct {
	respond Responder
	upload  Upload
	gap     time.Duration
}

// Upstream answers model calls by script and records them. Make one with [New]; its methods may be called by several
// goroutines at once.
type Upstream struct {
	connections atomic.Int64

	mu       sync.Mutex // guards what follows
	scripts  map[string]entry
	fallback entry
	requests []*Request
	changed  chan struct{} // closed and replaced when a request is recorded
}

// New returns an Upstream that knows the built-in scripts and answers unknown models as `openai` does.
func New() *Upstream {
	u := &Upstream{scripts: builtin(), changed: make(chan struct{})}
	u.fallback = u.scripts["openai"]
	return u
}

// Names lists the scripts that can be asked for, sorted.
func (u *Upstream) Names() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.scripts))
}

// Script makes s the answer to requests for the model name. A name of the form "GET /v1/models" answers requests
// without a model by method and path.
func (u *Upstream) Script(name string, s Script) {
	u.set(name, entry{func(*Request) Script { return s }, s.Upload, s.UploadGap})
}

// Func lets f choose the answer to requests for the model name. The body is read whole before f is asked.
func (u *Upstream) Func(name string, f Responder) { u.set(name, entry{respond: f}) }

func (u *Upstream) set(name string, e entry) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scripts[name] = e
}

// Sequence answers the n-th request for the model name with the n-th script, and later ones with the last. Bodies
// are read whole.
func (u *Upstream) Sequence(name string, scripts ...Script) {
	var n atomic.Int64
	u.Func(name, func(*Request) Script {
		return scripts[min(int(n.Add(1)), len(scripts))-1]
	})
}

// Default lets f answer the requests that name no known script.
func (u *Upstream) Default(f Responder) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fallback = entry{respond: f}
}

// find returns the entry for a model, or for a method and path when the model is not a known name. ok is false when
// only the default is left.
func (u *Upstream) find(model, method, path string) (name string, e entry, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range []string{model, method + " " + path} {
		if e, ok := u.scripts[name]; ok {
			return name, e, true
		}
	}
	return "", u.fallback, false
}

// ServeHTTP receives the request, records it and plays the script its model names.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r := &Request{
		Method: req.Method, Path: req.URL.EscapedPath(), RawQuery: req.URL.RawQuery, Host: req.Host,
		Header: req.Header.Clone(), Head: takeHead(req.Context()), ContentLength: req.ContentLength,
		ReceivedAt: time.Now(), RemoteAddr: req.RemoteAddr, done: make(chan struct{}),
	}
	defer close(r.done)
	defer func() {
		if req.Context().Err() != nil {
			r.noteCancel()
		}
	}()
	p := player{w: w, rc: http.NewResponseController(w), ctx: req.Context(), record: r}
	script, err := u.receive(req, r)
	u.record(r)
	if err != nil {
		r.noteCancel()
		panic(http.ErrAbortHandler)
	}
	p.play(script)
}

// receive reads the body as far as the script wants it read and returns the script.
func (u *Upstream) receive(req *http.Request, r *Request) (Script, error) {
	var (
		chosen entry
		found  bool
		buf    = make([]byte, 16<<10)
	)
	for {
		if chosen.upload == Slowly && !sleep(req.Context(), chosen.gap) {
			r.BodyErr = context.Cause(req.Context())
			return Script{}, r.BodyErr
		}
		n, err := req.Body.Read(buf)
		r.Body = append(r.Body, buf[:n]...)
		if !found {
			r.Script, chosen, found = u.find(modelOf(r.Body), r.Method, r.Path)
			if found && chosen.upload == ReadPart {
				return chosen.respond(r), nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return chosen.respond(r), nil
		case err != nil:
			r.BodyErr = err
			return Script{}, err
		}
	}
}

// modelOf finds the value of the first "model" member in a JSON text that may be cut off, "" when there is none.
func modelOf(body []byte) string {
	key := []byte(`"model"`)
	for at := 0; ; {
		i := bytes.Index(body[at:], key)
		if i < 0 {
			return ""
		}
		at += i + len(key)
		rest, ok := bytes.CutPrefix(bytes.TrimLeft(body[at:], " \t\r\n"), []byte(":"))
		if !ok {
			continue
		}
		if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(`"`)); !ok {
			continue
		}
		if value, _, ok := bytes.Cut(rest, []byte(`"`)); ok {
			return string(value)
		}
	}
}
