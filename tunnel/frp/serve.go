package frp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// maxPending is how many connections may wait for a visitor. The server
	// asks for one for each of its waiting visitors and keeps 20.
	maxPending = 4096
	// missedPongs is how many pings may go without an answer.
	missedPongs = 3
)

// run serves until the connection is lost or ctx is done, and says why it is
// over. Nothing of the session is left then but the connections that serve has
// been given, which are dead.
func (s *session) run(ctx context.Context, serve func(net.Conn)) error {
	stop := context.AfterFunc(ctx, func() { s.leave(context.Cause(ctx)) })
	defer stop()
	var workers errgroup.Group
	workers.SetLimit(maxPending)
	var wait sync.WaitGroup
	wait.Go(s.ping)
	wait.Go(s.watch)
	ask := func() {
		workers.TryGo(func() error {
			s.work(serve)
			return nil
		})
	}
	for range s.early {
		ask()
	}
	s.listen(ask)
	wait.Wait()
	_ = workers.Wait()
	return s.reason
}

// fail ends the session, unless yamux has, which then knows better why.
func (s *session) fail(err error) {
	if !s.mux.IsClosed() {
		s.end(err)
	}
}

// watch ends the session when yamux gives the connection up. A server opens no
// streams.
func (s *session) watch() {
	for {
		stream, err := s.mux.Accept()
		if err != nil {
			s.end(fmt.Errorf("connection lost: %w", err))
			return
		}
		_ = stream.Close()
	}
}

// listen does what the server asks for, until the session is over.
func (s *session) listen(ask func()) {
	for {
		if s.options.Ping > 0 {
			_ = s.control.SetReadDeadline(time.Now().Add(missedPongs * s.options.Ping))
		}
		kind, content, err := readMessage(s.in)
		if err == nil && kind == kindPong {
			err = refusedPing(content)
		}
		if err != nil {
			s.fail(fmt.Errorf("control stream: %w", err))
			return
		}
		if kind == kindReqWorkConn {
			ask()
		}
	}
}

// ping tells the server that the client is alive until the session is over.
func (s *session) ping() {
	if s.options.Ping < 0 {
		return
	}
	ticker := time.NewTicker(s.options.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.mux.CloseChan():
			return
		}
		now := time.Now().Unix()
		err := writeMessage(s.out, kindPing, ping{PrivilegeKey: privilegeKey(s.options.Token, now), Timestamp: now})
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// refusedPing is the server's complaint in an answer to a ping.
func refusedPing(content []byte) error {
	answer, err := decode[pong](content)
	if err == nil && answer.Error != "" {
		err = fmt.Errorf("ping refused: %s", answer.Error)
	}
	return err
}

// work opens a connection for the server's store and hands it over when a
// visitor comes.
func (s *session) work(serve func(net.Conn)) {
	stream, err := s.mux.Open()
	if err != nil {
		return // the session is over
	}
	now := time.Now().Unix()
	err = writeMessage(stream, kindNewWorkConn, newWorkConn{
		RunID: s.runID, PrivilegeKey: privilegeKey(s.options.Token, now), Timestamp: now,
	})
	var start startWorkConn
	if err == nil {
		start, err = expect[startWorkConn](stream, kindStartWorkConn)
	}
	if start.Error != "" {
		s.options.Logger.Warn().Str("refusal", start.Error).Msg("tunnel may not carry a connection")
	}
	if err != nil || start.Error != "" {
		_ = stream.Close() // also where the server had no use for it, or the session is over
		return
	}
	serve(newWorkConnection(stream, start))
}
