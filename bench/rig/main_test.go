package rig_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"testing"

	"go.uber.org/goleak"
)

// TestMain is also the main of what the tests start in the place of muxproxy:
// this binary, with "daemon" as its argument.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "daemon" {
		if err := daemon(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// daemon has an admin API that makes sessions and says how many there are.
func daemon() error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	listener, err := net.Listen("tcp", os.Getenv("MUXPROXY_ADMIN_LISTEN"))
	if err != nil {
		return err
	}
	live, batches := map[string]bool{}, 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /sessions", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]int{"live": len(live), "batches": batches})
	})
	mux.HandleFunc("POST /sessions/batch", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Count int }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || asked.Count > 1000 {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		batches++
		var made []map[string]any
		for range asked.Count {
			id := fmt.Sprintf("s%d", len(live))
			live[id] = true
			made = append(made, map[string]any{"id": id, "secret": "of " + id, "endpoint": map[string]string{"url": "http://here"}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sessions": made})
	})
	mux.HandleFunc("POST /sessions/end", func(_ http.ResponseWriter, r *http.Request) {
		var asked struct{ IDs []string }
		if json.NewDecoder(r.Body).Decode(&asked) == nil && r.URL.Query().Get("purge") == "true" && len(asked.IDs) <= 1000 {
			for _, id := range asked.IDs {
				delete(live, id)
			}
		}
	})
	go func() { _ = http.Serve(listener, mux) }()
	ready := fmt.Sprintf(`{"listen":"here:1","admin_url":"http://%s"}`, listener.Addr())
	if err := os.WriteFile(os.Getenv("MUXPROXY_READY_FILE"), []byte(ready), 0o600); err != nil {
		return err
	}
	<-interrupted
	return nil
}
