package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// A caller is a harness with one session and one connection.
type caller struct {
	client   http.Client
	url      string
	secret   string
	messages []string
	fixed    int // messages that stay
	random   *rand.Rand
}

// newCaller has a conversation of size bytes, before the next message.
func newCaller(addr, path, secret string, size int) *caller {
	c := &caller{url: "http://" + addr + path, secret: secret, random: rand.New(rand.NewPCG(1, rand.Uint64()))}
	c.client.Transport = &http.Transport{
		MaxIdleConnsPerHost: 1, DisableCompression: true, DialContext: (&net.Dialer{}).DialContext, WriteBufferSize: 64 << 10,
	}
	for n := 0; n < size; n += 1 << 10 {
		c.grow(min(size-n, 1<<10))
	}
	c.fixed = len(c.messages)
	return c
}

// grow adds a message of about size bytes that nobody has said before.
func (c *caller) grow(size int) {
	var text strings.Builder
	for text.Len() < size-40 {
		fmt.Fprintf(&text, "%016x ", c.random.Uint64())
	}
	c.messages = append(c.messages, `{"role":"user","content":"`+text.String()+`"}`)
}

// renew replaces the last message by another.
func (c *caller) renew() {
	c.messages = c.messages[:c.fixed]
	c.grow(1 << 10)
}

func (c *caller) call(ctx context.Context) error {
	body := []byte(`{"model":"json-2k","messages":[` + strings.Join(c.messages, ",") + `],"temperature":0.7}`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.secret)
	request.Header.Set("Content-Type", "application/json")
	_, err = rig.Do(&c.client, request)
	return err
}

// A load is callers that call at the same time.
type load []*caller

func (d *daemon) load(ctx context.Context, connections int, path string, size int) (load, error) {
	sessions, err := d.Register(ctx, connections, "{}")
	if err != nil {
		return nil, err
	}
	var l load
	for _, session := range sessions {
		l = append(l, newCaller(d.Listen, path, session.Secret, size-1<<10))
	}
	return l, nil
}

// drive makes n calls, as fast as it goes or so many a second, and returns how
// long each took.
func (l load) drive(ctx context.Context, n, rate int) ([]time.Duration, error) {
	var (
		mu        sync.Mutex
		latencies []time.Duration
		next      atomic.Int64
		work      errgroup.Group
	)
	start := time.Now()
	for _, c := range l {
		work.Go(func() error {
			for {
				i := next.Add(1) - 1
				if i >= int64(n) {
					return nil
				}
				c.renew()
				if rate > 0 {
					time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
				}
				began := time.Now()
				if err := c.call(ctx); err != nil {
					return err
				}
				mu.Lock()
				latencies = append(latencies, time.Since(began))
				mu.Unlock()
			}
		})
	}
	return latencies, work.Wait()
}
