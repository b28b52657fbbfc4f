package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// A Program is what is to be run, and how.
type Program struct {
	Args []string
	// Env is beside the environment of this process.
	Env []string
	// Dir is the folder that it runs in and that is removed with it; empty is this
	// process's, which stays.
	Dir string
	// Stdout and Stderr take what it prints; nil is nobody.
	Stdout, Stderr io.Writer
	// Alone gives it a core for itself, see [PinLoad].
	Alone bool
	// StopFor is how long it may take to end when it is told to, before it is
	// killed.
	StopFor time.Duration
}

// A Process is a program that runs. It is told to end when the context is done
// that it was started with.
type Process struct {
	// Dir is its folder.
	Dir string

	command *exec.Cmd
	stopFor time.Duration
	killed  bool
	ended   chan struct{}
	err     error // of its end, read after ended
}

// Start starts a program.
func Start(ctx context.Context, p Program) (*Process, error) {
	args := p.Args
	if p.Alone {
		args = append([]string{"taskset", "-c", strconv.Itoa(targetCore)}, args...)
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // running programs is what it is for
	command.Dir, command.Env = p.Dir, append(os.Environ(), p.Env...)
	command.Stdout, command.Stderr = p.Stdout, p.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = p.StopFor
	if err := command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.Args[0], err), os.RemoveAll(p.Dir))
	}
	started := &Process{Dir: p.Dir, command: command, stopFor: p.StopFor, ended: make(chan struct{})}
	go func() {
		started.err = command.Wait()
		close(started.ended)
	}()
	return started, nil
}

// PID is its number.
func (p *Process) PID() int { return p.command.Process.Pid }

// awaitPoll is how often [Process.Await] tries.
const awaitPoll = 5 * time.Millisecond

// Await tries until there is no error, for so long and as long as the process
// runs.
func (p *Process) Await(ctx context.Context, limit time.Duration, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(awaitPoll)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("it has ended: %w", errors.Join(p.err, err))
		case <-ctx.Done():
			return fmt.Errorf("not ready in time: %w", err)
		}
	}
}

// Kill ends it as nothing can be prepared for. Its folder stays.
func (p *Process) Kill() error {
	if err := p.command.Process.Kill(); err != nil {
		return err
	}
	<-p.ended
	p.killed = true
	return nil
}

// Stop ends it as a supervisor does, unless it was killed, waits for it, and
// removes its folder. That it ended in any other way than when it was told to
// and well is an error.
func (p *Process) Stop() error {
	if p.killed {
		return os.RemoveAll(p.Dir)
	}
	err := p.command.Process.Signal(os.Interrupt)
	late := time.AfterFunc(p.stopFor, func() { _ = p.command.Process.Kill() })
	defer late.Stop()
	<-p.ended
	return errors.Join(err, p.err, os.RemoveAll(p.Dir))
}
