package registry_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/muxproxy/muxproxy/registry"
)

func TestWhatAFailedHookSaysIsBounded(t *testing.T) {
	r, err := registry.New(registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registered, err := r.Register(registry.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	s := registered[0].Session
	s.HookAsked("judge", errors.New("x"+strings.Repeat("é", 1<<20)))
	s.HookAsked("", errors.New("refused"))
	got := s.HookErrors()
	if text := got["judge"]; len(text) > 512 || len(text) < 500 || !utf8.ValidString(text) || got[""] != "refused" {
		t.Errorf("got %q", got)
	}
	s.HookAsked("judge", nil)
	if got := s.HookErrors(); len(got) != 1 {
		t.Errorf("got %q; want nothing of the one that has answered", got)
	}
}
