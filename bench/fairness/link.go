package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// A shape is what a link does to each TCP connection, in each direction.
type shape struct {
	Rate   int           // bytes a second
	Delay  time.Duration // one way
	Buffer int           // bytes that may wait for their turn
}

// socketBuffer keeps what waits in the relay's own sockets small beside the
// link's buffer. The system doubles it.
const socketBuffer = 8 << 10

// quantum is how much the link moves at a time: a few packets.
const quantum = 4 << 10

// link is a relay in front of a server that behaves like a slow, long line.
type link struct {
	shape
	listener net.Listener
	target   string

	wait  sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
	count int // connections so far
}

func newLink(ctx context.Context, s shape, target string) (*link, error) {
	config := net.ListenConfig{Control: smallReceiveBuffer}
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := &link{shape: s, listener: listener, target: target}
	l.wait.Go(func() { l.accept(ctx) })
	return l, nil
}

func (l *link) addr() string { return l.listener.Addr().String() }

// connections is how many there have been.
func (l *link) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

func (l *link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.wait.Wait()
}

func (l *link) accept(ctx context.Context) {
	dialer := net.Dialer{Control: smallReceiveBuffer}
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := dialer.DialContext(ctx, "tcp", l.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		l.conns, l.count = append(l.conns, near, far), l.count+1
		l.mu.Unlock()
		l.carry(far, near)
		l.carry(near, far)
	}
}

// packet is bytes under way, with when they came to where they are, or when
// they will come.
type packet struct {
	bytes []byte
	at    time.Time
}

// carry relays one direction: what is read waits in the buffer, leaves it at
// the link's rate and arrives a delay later. A late wake-up of this process
// does not slow the link: the times are those of the bytes, not of the clock.
func (l *link) carry(to, from net.Conn) {
	buffer := make(chan packet, l.Buffer/quantum)
	line := make(chan packet, 1<<16) // the delay alone empties it
	l.wait.Go(func() {
		defer close(buffer)
		for {
			piece := make([]byte, quantum)
			n, err := from.Read(piece)
			if n > 0 {
				buffer <- packet{piece[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	})
	l.wait.Go(func() {
		defer close(line)
		var free time.Time // when the line takes the next byte
		for p := range buffer {
			if free.Before(p.at) {
				free = p.at
			}
			free = free.Add(time.Duration(len(p.bytes)) * time.Second / time.Duration(l.Rate))
			time.Sleep(time.Until(free))
			line <- packet{p.bytes, free.Add(l.Delay)}
		}
	})
	l.wait.Go(func() {
		defer func() { _ = to.Close() }()
		for p := range line {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
				for range line { // until the reader has noticed
				}
				return
			}
		}
	})
}

// smallReceiveBuffer keeps the system from taking in more than the link would.
func smallReceiveBuffer(_, _ string, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, socketBuffer)
	})
	return errors.Join(err, failed)
}
