package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/bench/controlplane"
	"github.com/muxproxy/muxproxy/bench/rig"
	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

const (
	// mostBaseline is the largest run with a tunnel for each rollout: more would
	// take longer to open than the generations take.
	mostBaseline = 256
	// ratePerMinute is how fast tunnels are opened: the daemon's default.
	ratePerMinute = 500
	// wait is how long a rollout waits for its session.
	wait = "10m"
	key  = "bench"
	// stopFor is how long the daemon has to delete its tunnels.
	stopFor = 40 * time.Second
)

// bench is all runs.
type bench struct {
	binary string
	scale  float64
	drawn  drawn
	log    io.Writer
}

func (b *bench) runAll(ctx context.Context, counts, multiplexes []int) (*results, error) {
	r := &results{Scale: b.scale, Machine: rig.ThisMachine()}
	for _, multiplex := range multiplexes {
		for _, n := range counts {
			if multiplex == 1 && n > mostBaseline {
				continue
			}
			one, err := b.run(ctx, n, multiplex)
			if err != nil {
				return nil, fmt.Errorf("%d rollouts, %d on a tunnel: %w", n, multiplex, err)
			}
			fmt.Fprintf(b.log, "n %4d  multiplex %2d  tunnels %3d  errors %d  duration p50 %6.2f p90 %6.2f  overhead p50 %6.2f p90 %6.2f\n",
				n, multiplex, one.Tunnels, one.Errors, one.Duration.P50, one.Duration.P90, one.Overhead.P50, one.Overhead.P90)
			r.Runs = append(r.Runs, one)
		}
	}
	return r, nil
}

// run measures n rollouts with a provider, a model and a daemon of their own.
func (b *bench) run(ctx context.Context, n, multiplex int) (one runResult, err error) {
	provider, err := controlplane.Start(ctx, controlplane.Options{
		Key:    key,
		Window: time.Duration(float64(time.Minute) / b.scale),
		Delays: durations(b.drawn.Creations, b.scale),
	}, frpstest.Options{Version: frpstest.V066, Token: "bench"})
	if err != nil {
		return runResult{}, err
	}
	defer provider.Close()
	m := newModel(durations(b.drawn.Generations[:n], b.scale))
	upstream, err := rig.Serve(ctx, &http.Server{Handler: m, ReadHeaderTimeout: time.Minute})
	if err != nil {
		return runResult{}, err
	}
	defer upstream.Close()
	d, err := rig.StartDaemon(ctx, rig.Program{Args: []string{b.binary}, StopFor: stopFor, Env: []string{
		"MUXPROXY_TUNNEL=prime", "PRIME_API_KEY=" + key, "PRIME_API_BASE_URL=" + provider.BaseURL,
		"MUXPROXY_MULTIPLEX=" + strconv.Itoa(multiplex),
		fmt.Sprintf("MUXPROXY_TUNNEL_RATE=%g/m", ratePerMinute*b.scale),
		"MUXPROXY_UPSTREAM_URL=http://" + upstream.Addr, "MUXPROXY_UPSTREAM_API_KEY=" + key,
		// How it finds the tunnels' host names without a name server; what is on
		// loopback it asks directly.
		"HTTP_PROXY=http://" + provider.FRPS.HTTPAddr(),
	}})
	if err != nil {
		return runResult{}, err
	}
	one = b.rollOut(ctx, d, provider, m, n)
	one.N, one.Multiplex, one.Tunnels = n, multiplex, provider.Counts().Created
	if err := d.Stop(); err != nil {
		return runResult{}, fmt.Errorf("stop daemon: %w", err)
	}
	if left := provider.Live(); left > 0 {
		return runResult{}, fmt.Errorf("%d tunnels left behind", left)
	}
	return one, ctx.Err()
}

// rollOut starts all rollouts at once and waits for them.
func (b *bench) rollOut(ctx context.Context, d *rig.Daemon, provider *controlplane.Stand, m *model, n int) (one runResult) {
	transport := provider.FRPS.Transport()
	transport.DisableKeepAlives = true // a sandbox each
	harness := &http.Client{Transport: transport}
	took, errs := make([]time.Duration, n), make([]error, n)
	begin := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-begin
			start := time.Now()
			errs[i] = rollout(ctx, d, harness, i)
			took[i] = time.Since(start)
		})
	}
	close(begin)
	all.Wait()
	for i, err := range errs {
		if err != nil {
			one.Errors++
			fmt.Fprintf(b.log, "rollout %d: %v\n", i, err)
			continue
		}
		one.Durations = append(one.Durations, millis(took[i].Seconds()))
		one.Overheads = append(one.Overheads, millis((took[i] - m.generation(i)).Seconds()))
	}
	one.Duration, one.Overhead = quantilesOf(one.Durations), quantilesOf(one.Overheads)
	return one
}

// rollout is one, from asking for a session to the last byte of the answer.
func rollout(ctx context.Context, d *rig.Daemon, harness *http.Client, i int) error {
	var session struct {
		Secret   string `json:"secret"`
		Endpoint struct {
			OpenAI string `json:"openai_base_url"`
		} `json:"endpoint"`
	}
	if err := d.Call(ctx, http.MethodPost, "/sessions", fmt.Sprintf(`{"wait":%q}`, wait), &session); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, modelName(i), strings.Repeat("task ", answerSize/5))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, session.Endpoint.OpenAI+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+session.Secret)
	request.Header.Set("Content-Type", "application/json")
	answer, err := rig.Do(harness, request)
	if err == nil && !strings.Contains(string(answer), modelName(i)) {
		err = fmt.Errorf("somebody else's answer: %.200s", answer)
	}
	return err
}
