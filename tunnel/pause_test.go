package tunnel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
)

func TestPauseLastsUntilItsTimeOrItsContextIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := tunnel.Pause(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("got %v after %s; want nothing after a minute", err, time.Since(began))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(why) })
		began = time.Now()
		if err := tunnel.Pause(ctx, time.Minute); !errors.Is(err, why) || time.Since(began) != time.Second {
			t.Errorf("got %v after %s; want the cause after a second", err, time.Since(began))
		}
	})
}
