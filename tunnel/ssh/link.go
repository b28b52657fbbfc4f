package ssh

import (
	"net"
	"sync/atomic"
	"time"
)

// link is the TCP connection under an SSH connection. It tells whether it is
// broken, and closes itself when the far end has long been silent.
type link struct {
	net.Conn
	closed atomic.Bool // by this end
	broken atomic.Bool // by anything else
	mute   atomic.Bool // closed by the alarm
	limit  time.Duration
	alarm  atomic.Pointer[time.Timer] // nil before watch
}

func newLink(conn net.Conn) *link { return &link{Conn: conn} }

// Read has the far end told at once that something arrived: sshd holds small
// packets back until it knows.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.fail()
		return n, err
	}
	acknowledge(l.Conn)
	if alarm := l.alarm.Load(); alarm != nil {
		alarm.Reset(l.limit)
	}
	return n, nil
}

func (l *link) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil {
		l.fail()
	}
	return n, err
}

func (l *link) fail() {
	if !l.closed.Load() {
		l.broken.Store(true)
	}
}

// failed tells whether reading or writing failed before the link was closed.
func (l *link) failed() bool { return l.broken.Load() }

// watch has the link close itself when it has been silent for so long.
func (l *link) watch(limit time.Duration) {
	l.limit = limit
	l.alarm.Store(time.AfterFunc(limit, func() {
		l.mute.Store(true)
		_ = l.Close()
	}))
}

// silent tells whether it has closed itself.
func (l *link) silent() bool { return l.mute.Load() }

// Close ends the connection, in either direction.
func (l *link) Close() error {
	l.closed.Store(true)
	if alarm := l.alarm.Load(); alarm != nil {
		alarm.Stop()
	}
	return l.Conn.Close()
}
