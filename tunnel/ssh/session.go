package ssh

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// closeWait is how long what has been written gets to leave when a tunnel is
// closed.
const closeWait = 2 * time.Second

// session is one SSH connection whose far end listens.
type session struct {
	client    *ssh.Client
	link      *link
	port      int
	keepalive time.Duration
	incoming  <-chan ssh.NewChannel
}

// run hands connections over until the SSH connection ends, which it makes
// happen when ctx is done, and says why. It comes back when nothing of it is
// left.
//
// Two things that look obvious are not done. Connections are always taken, at
// once: while one waits the whole SSH connection does. And the far end is not
// told to stop listening, for which a far end that hangs gives no answer; it
// stops with the connection.
func (s *session) run(ctx context.Context, serve func(net.Conn)) error {
	s.link.watch(2 * s.keepalive)
	lost, over := make(chan error, 1), make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { lost <- s.client.Wait() })
	helpers.Go(func() { s.ping(over) })
	defer helpers.Wait()
	defer close(over)

	streams := make(map[*stream]bool)
	ended := make(chan *stream)
	done, incoming := ctx.Done(), s.incoming
	var patience <-chan time.Time
	var err error
	for alive := true; alive || len(streams) > 0; {
		select {
		case request, ok := <-incoming:
			if !ok {
				incoming = nil
				continue
			}
			stream := newStream(request)
			streams[stream] = true
			take := serve
			if done == nil {
				take = nil
			}
			go func() {
				stream.carry(request, take)
				ended <- stream
			}()
		case stream := <-ended:
			delete(streams, stream)
		case <-done:
			done = nil
			closeAll(streams)
			patience = time.After(closeWait)
		case <-patience:
			_ = s.link.Close()
		case err = <-lost:
			alive = false
			_ = s.link.Close()
			closeAll(streams)
		}
		if ctx.Err() != nil && len(streams) == 0 {
			_ = s.link.Close()
		}
	}
	if s.link.silent() {
		err = errors.New("no sign of life from the SSH server")
	}
	return err
}

func closeAll(streams map[*stream]bool) {
	for s := range streams {
		_ = s.Close()
	}
}

// ping asks the far end for a sign of life every so often. That none came is
// the link's business, because asking, too, waits for a far end that hangs.
func (s *session) ping(over <-chan struct{}) {
	tick := time.NewTicker(s.keepalive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, _, err := s.client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
				return
			}
		case <-over:
			return
		}
	}
}
