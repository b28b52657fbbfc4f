package frp_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/hashicorp/yamux"

	"github.com/muxproxy/muxproxy/tunnel/frp"
)

// scripted is a server that answers logins and proxies as a test wants, for
// what a real one cannot be made to do.
type scripted struct {
	Addr string
	// Login is asked about each login: ok false is no answer at all, an error
	// text a refusal.
	Login func(runID string) (newID, refusal string, ok bool)
	// Proxy is asked about each proxy; empty is yes.
	Proxy func() (refusal string)
}

// start serves until the test ends. Login and Proxy may be called at the same
// time by several clients.
func (s *scripted) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = listener.Addr().String()
	var mu sync.Mutex
	var conns []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			all.Go(func() { s.session(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
}

// session plays one connection until the client closes it.
func (s *scripted) session(conn net.Conn) {
	config := yamux.DefaultConfig()
	config.LogOutput = io.Discard
	mux, err := yamux.Server(conn, config)
	if err != nil {
		return
	}
	defer func() { _ = mux.Close() }()
	stream, err := mux.Accept()
	if err != nil {
		return
	}
	_, content, err := frp.ReadMessage(stream)
	if err != nil {
		return
	}
	var login struct {
		RunID string `json:"run_id"`
	}
	_ = json.Unmarshal(content, &login)
	id, refusal, ok := s.Login(login.RunID)
	if ok {
		_ = frp.WriteMessage(stream, '1', map[string]string{"run_id": id, "error": refusal})
	}
	if ok && refusal == "" {
		s.control(stream)
	}
	<-mux.CloseChan()
}

// control answers what comes after the login.
func (s *scripted) control(stream net.Conn) {
	in, out, err := frp.EncryptControl(stream, "")
	if err != nil {
		return
	}
	for {
		kind, _, err := frp.ReadMessage(in)
		if err != nil {
			return
		}
		if kind == 'p' {
			refusal := ""
			if s.Proxy != nil {
				refusal = s.Proxy()
			}
			_ = frp.WriteMessage(out, '2', map[string]string{"remote_addr": ":20000", "error": refusal})
		}
	}
}

// mute accepts connections and says nothing.
func mute(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

// unverified is TLS as the driver has it without certificates.
func unverified() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }
