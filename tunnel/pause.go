package tunnel

import (
	"context"
	"time"
)

// Pause waits before something is tried again. An error says that ctx was done
// before, and why.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
