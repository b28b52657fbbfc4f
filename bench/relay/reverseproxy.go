package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/muxproxy/muxproxy/nonblock"
)

// serveTarget is a target in this process until ctx ends: the reverse proxy, bare or
// tuned, or the handler. It prints its address and that of its memory statistics.
func serveTarget(ctx context.Context, name, upstream string, out io.Writer) error {
	target := http.Server{} //nolint:gosec // a benchmark on loopback
	asItIs := func(l net.Listener) net.Listener { return l }
	listen := asItIs
	switch name {
	case nameReverse, nameTuned:
		target.Handler = reverseProxy(upstream, name == nameTuned)
	case nameHandler:
		relay, err := newHandler(upstream)
		if err != nil {
			return err
		}
		target.Handler, target.ConnContext, listen = relay, nonblock.Context, nonblock.Listen
	default:
		return fmt.Errorf("no such target: %q", name)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	statistics := http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})} //nolint:gosec // as above
	var serving errgroup.Group
	for _, s := range []struct {
		server *http.Server
		listen func(net.Listener) net.Listener
		format string
	}{
		{&target, listen, "%s\n"},
		{&statistics, asItIs, "http://%s/metrics\n"},
	} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		serving.Go(func() error { return s.server.Serve(s.listen(listener)) })
		fmt.Fprintf(out, s.format, listener.Addr())
	}
	<-ctx.Done()
	err := errors.Join(target.Close(), statistics.Close())
	if served := serving.Wait(); !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// reverseProxy is net/http's proxy with a large idle pool. Bare, it has
// FlushInterval -1, as streams are usually served; tuned, it has a buffer pool
// and leaves the flushing of event streams to net/http.
func reverseProxy(upstream string, tuned bool) *httputil.ReverseProxy {
	to := &url.URL{Scheme: "http", Host: upstream}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Set("Authorization", "Bearer bench")
		},
		Transport:     &http.Transport{MaxIdleConnsPerHost: 1 << 14, DisableCompression: true},
		FlushInterval: -1,
	}
	if tuned {
		proxy.FlushInterval = 0
		proxy.BufferPool = &bufferPool{}
	}
	return proxy
}

type bufferPool struct{ sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.Pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.Pool.Put(&b) }
