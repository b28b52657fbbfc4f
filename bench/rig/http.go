package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Do makes a request and reads the whole answer, which must be a success.
func Do(client *http.Client, request *http.Request) ([]byte, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: status %d: %.200s", request.Method, request.URL.Path, response.StatusCode, text)
	}
	return text, err
}

// Call makes a request with JSON, and reads that of the answer unless answer is
// nil.
func Call(ctx context.Context, client *http.Client, method, url, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	text, err := Do(client, request)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// Metrics reads what is exported to Prometheus at a URL.
func Metrics(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	text, err := Do(http.DefaultClient, request)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(strings.NewReader(string(text)))
}

// A Server serves HTTP on loopback, in this process.
type Server struct {
	// Addr is its host:port.
	Addr string

	http    *http.Server
	serving sync.WaitGroup
}

// Serve listens on a port of its own.
func Serve(ctx context.Context, server *http.Server) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: listener.Addr().String(), http: server}
	s.serving.Go(func() { _ = server.Serve(listener) })
	return s, nil
}

// Close cuts what is going on.
func (s *Server) Close() {
	_ = s.http.Close() // nothing is left to lose
	s.serving.Wait()
}
