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
)

// serveReverseProxy is net/http's proxy with a large idle pool. Bare, it has
// FlushInterval -1, as streams are usually served; tuned, it has a buffer pool
// and leaves the flushing of event streams to net/http. It prints its address
// and that of its memory statistics.
func serveReverseProxy(ctx context.Context, upstream string, tuned bool, out io.Writer) error {
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
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	handlers := []http.Handler{proxy, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}
	var servers []*http.Server
	var serving sync.WaitGroup
	for i, format := range []string{"%s\n", "http://%s/metrics\n"} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: handlers[i]} //nolint:gosec // a benchmark on loopback
		servers = append(servers, server)
		serving.Go(func() { _ = server.Serve(listener) })
		fmt.Fprintf(out, format, listener.Addr())
	}
	<-ctx.Done()
	var errs []error
	for _, server := range servers {
		errs = append(errs, server.Close())
	}
	serving.Wait()
	return errors.Join(errs...)
}

type bufferPool struct{ sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.Pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.Pool.Put(&b) }
