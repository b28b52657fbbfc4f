package main

import (
	"context"
	"fmt"

	"github.com/muxproxy/muxproxy/bench/rig"
)

const (
	chatPath      = "/v1/chat/completions"
	anyCredential = "bench-credential-of-some-length"
)

// register makes sessions, one for each worker. A target without any takes any
// credential.
func (p *process) register(ctx context.Context, count int, model string) (*rollouts, error) {
	r := &rollouts{process: p}
	if p.open != nil {
		var err error
		r.access, err = p.open(ctx, count, model)
		return r, err
	}
	if p.daemon == nil {
		for range count {
			r.access = append(r.access, access{path: chatPath, secret: anyCredential})
		}
		return r, nil
	}
	template := "{}"
	if p.override {
		template = fmt.Sprintf(`{"model":%q}`, model)
	}
	var err error
	if r.sessions, err = p.daemon.Register(ctx, count, template); err != nil {
		return nil, err
	}
	for _, s := range r.sessions {
		r.access = append(r.access, access{path: chatPath, secret: s.Secret})
	}
	return r, nil
}

// rollouts are the sessions of one measurement.
type rollouts struct {
	*process
	sessions []rig.Session // none where the target is not muxproxy
	access   []access
}

// end gives the memory of their traces back.
func (r *rollouts) end(ctx context.Context) error {
	if r.process.end != nil {
		return r.process.end(ctx, r.access)
	}
	if r.daemon == nil {
		return nil
	}
	return r.daemon.End(ctx, r.sessions)
}
