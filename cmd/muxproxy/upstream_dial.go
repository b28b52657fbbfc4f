package main

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"time"
)

// dialReplica opens a connection to where a replica's URL points and closes it
// again. A replica behind a proxy of the environment is left alone: that the
// proxy answers says nothing about it.
func dialReplica(ctx context.Context, replica string, timeout time.Duration) error {
	u, err := url.Parse(replica)
	if err != nil {
		return err
	}
	if through, err := http.ProxyFromEnvironment(&http.Request{URL: u}); through != nil || err != nil {
		return err
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}
