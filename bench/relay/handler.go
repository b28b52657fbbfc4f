package main

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/muxproxy/muxproxy/proxy/upstream"
)

// handler passes requests on through muxproxy's own upstream client and does
// nothing else: no session, no limit, nothing read of what it relays and nothing
// kept. With muxproxy's server in front of it, it is what muxproxy would cost
// without all that it is for.
type handler struct{ to *upstream.Upstream }

func newHandler(address string) (*handler, error) {
	const name = "model"
	set := upstream.NewSet(upstream.Options{})
	if err := set.Put(name, upstream.Config{
		Replicas: []upstream.ReplicaConfig{{URL: "http://" + address}}, APIKey: "bench", Style: upstream.StyleOpenAI,
	}); err != nil {
		return nil, err
	}
	to, _ := set.Get(name)
	return &handler{to}, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.relay(w, r); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (h *handler) relay(w http.ResponseWriter, r *http.Request) error {
	var body bytes.Buffer
	body.Grow(int(max(r.ContentLength, 0)) + bytes.MinRead) // the last of which sees the end
	if _, err := body.ReadFrom(r.Body); err != nil {
		return err
	}
	response, err := h.to.Send(context.WithoutCancel(r.Context()), &upstream.Request{
		Method: r.Method, Path: r.URL.Path, Header: r.Header, Body: body.Bytes(),
	})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	for _, name := range []string{"Content-Type", "Content-Length"} {
		if values := response.Header[name]; values != nil {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	buffer := make([]byte, 4<<10)
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if response.ContentLength < 0 {
				if err := http.NewResponseController(w).Flush(); err != nil {
					return err
				}
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
