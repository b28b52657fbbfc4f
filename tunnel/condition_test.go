package tunnel_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/muxproxy/muxproxy/tunnel"
)

// over tells whether the channel is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestConditionIsUpUntilItIsSaidOtherwise(t *testing.T) {
	var c tunnel.Condition
	if c.State() != tunnel.Up || c.Err() != nil || over(c.Changed()) || over(c.Done()) {
		t.Errorf("got %s, %v, changed %t, done %t; want up and nothing else", c.State(), c.Err(), over(c.Changed()), over(c.Done()))
	}
}

func TestEveryChangeOfStateIsHeardByWhoeverWaits(t *testing.T) {
	var c tunnel.Condition
	for _, state := range []tunnel.State{tunnel.Reconnecting, tunnel.Up} {
		first, second := c.Changed(), c.Changed()
		c.Become(state)
		if !over(first) || !over(second) || c.State() != state {
			t.Errorf("got %s, told %t and %t; want %s", c.State(), over(first), over(second), state)
		}
		if over(c.Changed()) {
			t.Error("the next change is there before it has come")
		}
	}
	if over(c.Done()) {
		t.Error("a change of state ended it")
	}
}

func TestConditionEndsOnceWithItsFirstReason(t *testing.T) {
	var c tunnel.Condition
	before := c.Done()
	c.End(tunnel.ErrExpired)
	c.End(tunnel.ErrClosed)
	if !over(before) || !over(c.Done()) || !errors.Is(c.Err(), tunnel.ErrExpired) {
		t.Errorf("got %v, done %t, later %t; want the first reason", c.Err(), over(before), over(c.Done()))
	}
	var unwatched tunnel.Condition
	unwatched.End(tunnel.ErrClosed)
	if !over(unwatched.Done()) {
		t.Error("nobody hears of an end that came before he asked")
	}
}

func TestConditionIsToldAndHeardConcurrently(t *testing.T) {
	var c tunnel.Condition
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			<-c.Done()
			if c.Err() == nil {
				t.Error("done without a reason")
			}
		})
		all.Go(func() {
			for range 100 {
				c.Become(tunnel.Reconnecting)
				_, _ = c.Changed(), c.State()
			}
			c.End(tunnel.ErrClosed)
		})
	}
	all.Wait()
}
