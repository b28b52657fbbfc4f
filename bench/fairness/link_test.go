package main

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestLinkCarriesAllAtItsRateAndLater(t *testing.T) {
	defer goleak.VerifyNone(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	l, err := newLink(t.Context(), shape{Rate: 5_000_000, Delay: 20 * time.Millisecond, Buffer: 64 << 10}, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	near, err := net.Dial("tcp", l.addr())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()

	began := time.Now()
	data := make([]byte, 500_000)
	_, _ = rand.Read(data)
	go func() {
		_, _ = near.Write(data)
		_ = near.Close()
	}()
	back, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(back, data) {
		t.Errorf("%d bytes, %v", len(back), err)
	}
	if took := time.Since(began); took < 120*time.Millisecond {
		t.Errorf("took %s; want 100 ms for the bytes and 20 ms for the way", took)
	}
	if l.connections() != 1 {
		t.Errorf("%d connections", l.connections())
	}
}
