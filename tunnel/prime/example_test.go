package prime_test

import (
	"context"
	"fmt"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
	"github.com/muxproxy/muxproxy/tunnel/prime"
)

func Example() {
	record, err := ledger.Open("/home/me/.cache/muxproxy/ledger")
	if err != nil {
		return
	}
	driver, err := prime.New(prime.Options{APIKey: "...", Ledger: record})
	if err != nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() { _ = driver.Run(ctx) }() // a daemon waits for it, after its tunnels

	opened, err := driver.Open(ctx, tunnel.Local{Server: "srv-1", Addr: "127.0.0.1:8080"})
	if err != nil {
		return
	}
	fmt.Println("reachable at", opened.URL())
	_ = opened.Close(ctx)
}
