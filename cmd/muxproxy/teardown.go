package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// teardown is how what was started is stopped: named steps, run in the reverse
// order of their registration. A start that fails halfway is undone by it too.
type teardown struct {
	steps []step
}

type step struct {
	name string
	run  func(ctx context.Context) error
}

// add registers a step, on the line after the thing that it stops exists.
func (t *teardown) add(name string, run func(ctx context.Context) error) {
	t.steps = append(t.steps, step{name, run})
}

// run runs every step, whatever became of those before it, and joins their
// errors. Steps run once: running again does nothing.
func (t *teardown) run(ctx context.Context) error {
	var errs []error
	for _, s := range slices.Backward(t.steps) {
		if err := s.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", s.name, err))
		}
	}
	t.steps = nil
	return errors.Join(errs...)
}
