package upstream

import (
	"net"
	"time"
)

// upload writes a long request while its answer is read: a replica that refuses
// it may do so before it has read all of it, or without doing that at all.
type upload struct {
	ended chan struct{}
	n     int64 // bytes written; like err to be read when it has ended
	err   error
}

func startUpload(c *connection, head []byte, m *message) *upload {
	u := &upload{ended: make(chan struct{})}
	go u.run(c, head, m)
	return u
}

func (u *upload) run(c *connection, head []byte, m *message) {
	defer close(u.ended)
	pieces := net.Buffers{head, m.body}
	if u.n, u.err = pieces.WriteTo(c.Conn); u.err != nil {
		c.awaitRefusal()
		return
	}
	m.written()
}

// succeeds reports whether all was written, for which it waits a little.
func (u *upload) succeeds(grace time.Duration) bool {
	select {
	case <-u.ended:
		return u.err == nil
	default:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-u.ended:
		return u.err == nil
	case <-timer.C:
		return false
	}
}
