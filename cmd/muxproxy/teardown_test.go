package main_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	main "github.com/muxproxy/muxproxy/cmd/muxproxy"
)

func TestTeardownRunsEveryStepOnceInReverseOrderAndNamesFailures(t *testing.T) {
	add, run := main.NewTeardown()
	var ran []string
	step := func(name string, err error) {
		add(name, func(context.Context) error {
			ran = append(ran, name)
			return err
		})
	}
	broken := errors.New("broken")
	step("first", nil)
	step("second", broken)
	step("third", nil)
	err := run(t.Context())
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "stop second") {
		t.Errorf("got %v; want the failure under its step's name", err)
	}
	if err := run(t.Context()); err != nil {
		t.Errorf("again: got %v; want nil", err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(ran, want) {
		t.Errorf("got %v; want %v", ran, want)
	}
}
