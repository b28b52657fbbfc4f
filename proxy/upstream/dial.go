package upstream

import (
	"context"
	"net"
	"syscall"
	"time"
)

// silenceTimeout is how long a peer may leave what was sent to it unacknowledged.
const silenceTimeout = 30 * time.Second

// dialer is the default of [Options].Dial.
func dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{
		// Finds dead peers, also behind middleboxes that forget idle flows.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4},
		Control: func(_, _ string, c syscall.RawConn) error {
			// Without it a peer that vanished is noticed late by keep-alive when it
			// has data outstanding, and otherwise does no harm.
			_ = c.Control(limitSilence)
			return nil
		},
	}
	return d.DialContext
}
