package frpstest_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/muxproxy/muxproxy/tunnel/frp/frpstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerComesBackOnItsPorts(t *testing.T) {
	for _, version := range []string{frpstest.V066, frpstest.V071} {
		t.Run(version, func(t *testing.T) {
			s := frpstest.New(t, frpstest.Options{Version: version})
			unknownSubdomainIs404(t, s)
			s.Kill()
			if conn, err := net.Dial("tcp", s.Addr()); err == nil {
				_ = conn.Close()
				t.Fatal("a killed server listens")
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			unknownSubdomainIs404(t, s)
		})
	}
}

func unknownSubdomainIs404(t *testing.T, s *frpstest.Server) {
	t.Helper()
	transport := s.Transport()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	answer, err := client.Get(strings.ReplaceAll(s.SubdomainURL(), "{subdomain}", "nobody"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusNotFound || !strings.Contains(string(page), "frp") {
		t.Fatalf("got %d %q, %v; want frp's 404 page", answer.StatusCode, page, err)
	}
}
