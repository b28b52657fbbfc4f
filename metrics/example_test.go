package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muxproxy/muxproxy/metrics"
)

func Example() {
	reg := prometheus.NewRegistry()
	m, err := metrics.New(reg, metrics.Sources{
		Version:   "1.2.3",
		Upstreams: func() []metrics.UpstreamState { return []metrics.UpstreamState{{Name: "default", Up: 1}} },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.Request(metrics.RequestRecord{Route: metrics.RouteChat, Code: 200, Outcome: metrics.OutcomeOK, Duration: time.Second})
	m.Turn("chat")
	m.Upstream("default").Tokens(metrics.TokensOutput, 12)

	rec := httptest.NewRecorder()
	metrics.Handler(reg).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		if strings.HasPrefix(line, "muxproxy_turns_total{dialect=\"chat\"") || strings.HasPrefix(line, "muxproxy_tokens_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// muxproxy_tokens_total{type="cached",upstream="default"} 0
	// muxproxy_tokens_total{type="input",upstream="default"} 0
	// muxproxy_tokens_total{type="output",upstream="default"} 12
	// muxproxy_tokens_total{type="reasoning",upstream="default"} 0
	// muxproxy_turns_total{dialect="chat"} 1
}
