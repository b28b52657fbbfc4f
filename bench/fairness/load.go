package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// The kinds of bulk beside the streams.
const (
	bulkNone     = "none"
	bulkUpload   = "upload"
	bulkDownload = "download"
)

const (
	settle    = time.Second           // after bulk has begun, before measuring
	askers    = 4                     // streaming rollouts that also make small requests
	askPause  = 50 * time.Millisecond // between one's requests
	smallText = 1 << 10
)

// rollout is one harness with connections of its own.
type rollout struct {
	url, secret string
	client      *http.Client
}

// load is one measurement: many streams, and perhaps one bulk beside them.
type load struct {
	streams []rollout
	bulk    rollout
	kind    string
	size    int // bytes of a bulk upload
	window  time.Duration
}

// sample is what a measurement saw inside its window.
type sample struct {
	events, requests []time.Duration
	bulk             int // bytes
	window           time.Duration
}

// measure runs the load. Whatever fails in it fails the measurement.
func (l *load) measure(ctx context.Context) (*sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &meter{}
	group, running := errgroup.WithContext(ctx)
	var begun sync.WaitGroup
	for _, r := range l.streams {
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		group.Go(func() error {
			defer first()
			return r.stream(running, m, first)
		})
	}
	begun.Wait()
	for _, r := range l.streams[:askers] {
		group.Go(func() error { return r.ask(running, m) })
	}
	group.Go(func() error { return l.transfer(running, m) })
	group.Go(func() error {
		defer cancel(errMeasured)
		if err := pause(running, settle); err != nil {
			return err
		}
		m.turn(true)
		defer m.turn(false)
		return pause(running, l.window)
	})
	if err := group.Wait(); !errors.Is(context.Cause(ctx), errMeasured) {
		return nil, err
	}
	m.sample.window = l.window
	return &m.sample, nil
}

// errMeasured ends a load that has been measured.
var errMeasured = errors.New("measured")

// meter gathers while it is on.
type meter struct {
	mu     sync.Mutex
	on     bool
	sample sample
}

func (m *meter) turn(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.on = on
}

func (m *meter) note(f func(s *sample)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.on {
		f(&m.sample)
	}
}

// stream reads events and notes how long each was under way.
func (r rollout) stream(ctx context.Context, m *meter, first func()) error {
	answer, err := r.post(ctx, modelEvents, smallText, true)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		_, rest, ok := strings.Cut(lines.Text(), timePrefix)
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, `"`)
		sent, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		took := time.Since(time.Unix(0, sent))
		first()
		m.note(func(s *sample) { s.events = append(s.events, took) })
	}
	return errors.Join(errors.New("stream ended"), lines.Err())
}

// ask makes small requests.
func (r rollout) ask(ctx context.Context, m *meter) error {
	for {
		began := time.Now()
		answer, err := r.post(ctx, modelSmall, smallText, false)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		took := time.Since(began)
		m.note(func(s *sample) { s.requests = append(s.requests, took) })
		if err := pause(ctx, askPause); err != nil {
			return err
		}
	}
}

// transfer moves one bulk after another.
func (l *load) transfer(ctx context.Context, m *meter) error {
	model, size := modelSmall, l.size
	if l.kind == bulkDownload {
		model, size = modelBulk, smallText
	}
	for l.kind != bulkNone {
		answer, err := l.bulk.post(ctx, model, size, false)
		if err != nil {
			return err
		}
		if l.kind == bulkUpload {
			m.note(func(s *sample) { s.bulk += size })
		}
		err = l.receive(answer.Body, m)
		_ = answer.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// receive reads an answer, counting a download as it comes.
func (l *load) receive(body io.Reader, m *meter) error {
	piece := make([]byte, 64<<10)
	for {
		n, err := body.Read(piece)
		if l.kind == bulkDownload {
			m.note(func(s *sample) { s.bulk += n })
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
	}
}

func (r rollout) post(ctx context.Context, model string, size int, stream bool) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"%s"}]}`, model, stream, text(size))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+r.secret)
	answer, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return nil, fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	return answer, nil
}

// pause waits; the error says that ctx was done first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
