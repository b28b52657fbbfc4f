package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/muxproxy/muxproxy/tunnel"
	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

const (
	// lastWords is how long the output of a program that has ended is waited for
	// when a descendant holds the pipes.
	lastWords = 200 * time.Millisecond
	// groupPoll is how often a group without a leader is looked at.
	groupPoll = 10 * time.Millisecond
	// killWait is how long the kernel may take to end what it was told to kill.
	killWait = time.Second
)

// program is a running program with its descendants, and the tunnel once its
// URL is known. That is up until the program has ended, or Close, and then done.
type program struct {
	tunnel.Condition

	url    string
	grace  time.Duration
	mark   string
	ledger *ledger.Ledger
	output *output

	name string
	pgid int           // of the group that the program leads
	gone chan struct{} // closed when nothing of the group is left

	mu   sync.Mutex
	over bool // the group has gone, and its number may be another's
}

// launch starts the command. When it could not be started, or recorded, nothing
// of it is left.
func (p *program) launch(command *exec.Cmd) error {
	p.name = filepath.Base(command.Path)
	p.gone = make(chan struct{})
	started := make(chan error)
	go p.run(command, started)
	err := <-started
	if err != nil {
		<-p.gone
	}
	return err
}

// run starts the program and comes back when nothing of its group is left. The
// kernel ties the program to the thread that starts it rather than to the
// process, so that this thread must not end meanwhile.
func (p *program) run(command *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.gone)

	pipes, err := start(command)
	if err != nil {
		started <- err
		return
	}
	p.pgid = command.Process.Pid
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(pipes)
	}()
	// Until it is waited for, the process can be identified even if it has ended.
	err = p.record()
	if err != nil {
		p.signal(syscall.SIGKILL)
	}
	started <- err

	status := command.Wait()
	select {
	case <-read:
	case <-time.After(lastWords):
	}
	p.End(&tunnel.LostError{Reason: fmt.Sprintf("%s ended: %s; %s", p.name, ending(status), p.output)})
	p.endGroup()
	for _, pipe := range pipes {
		_ = pipe.Close() // a descendant outside of the group may hold the other end
	}
	<-read
}

// start starts the command with pipes for its outputs, whose near ends it
// returns. They are not exec's own, because those would make Wait wait for
// whoever else holds them.
func start(command *exec.Cmd) ([]*os.File, error) {
	var near, far []*os.File
	defer func() {
		for _, f := range far {
			_ = f.Close()
		}
	}()
	for _, out := range []*io.Writer{&command.Stdout, &command.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(near)
			return nil, err
		}
		near, far = append(near, r), append(far, w)
		*out = w
	}
	if err := command.Start(); err != nil {
		closeAll(near)
		return nil, err
	}
	return near, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// read reads the pipes until nobody holds their other ends.
func (p *program) read(pipes []*os.File) {
	var all sync.WaitGroup
	for _, pipe := range pipes {
		all.Go(func() {
			l := lines{emit: p.output.line}
			_, _ = io.Copy(&l, pipe)
			l.flush()
		})
	}
	all.Wait()
}

// record puts the group into the ledger.
func (p *program) record() error {
	if p.ledger == nil {
		return nil
	}
	g, err := identify(p.pgid, p.mark)
	if err == nil {
		err = g.record(p.ledger)
	}
	if err != nil {
		return fmt.Errorf("record process: %w", err)
	}
	return nil
}

// signal sends a signal to the whole group.
func (p *program) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		_ = syscall.Kill(-p.pgid, s)
	}
}

// endGroup ends what is left of the group when its leader has ended: with the
// same grace, because the leader may be a shell and the tunnel its child.
func (p *program) endGroup() {
	p.signal(syscall.SIGTERM)
	if !p.empty(p.grace) {
		p.signal(syscall.SIGKILL)
		if !p.empty(killWait) {
			return // it stays on record
		}
	}
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	_ = p.ledger.Forget(kind, strconv.Itoa(p.pgid)) // at worst it is looked for in vain
}

// empty waits until nobody is left in the group, whose leader has been waited
// for; as long as somebody is, its number is not given to another.
func (p *program) empty(within time.Duration) bool {
	timeout := time.After(within)
	tick := time.NewTicker(groupPoll)
	defer tick.Stop()
	for {
		// As the first process of a container we are given the orphans.
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-p.pgid, nil, syscall.WNOHANG, nil)
		}
		if !inhabited(p.pgid) {
			return true
		}
		select {
		case <-tick.C:
		case <-timeout:
			return false
		}
	}
}

// stop ends the whole group: SIGTERM, and after the grace or when ctx is done
// SIGKILL. An error says that it is still there a second later.
func (p *program) stop(ctx context.Context) error {
	p.signal(syscall.SIGTERM)
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	select {
	case <-p.gone:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	p.signal(syscall.SIGKILL)
	kill := time.NewTimer(killWait)
	defer kill.Stop()
	select {
	case <-p.gone:
		return nil
	case <-kill.C:
		return fmt.Errorf("end %s: process group %d is still there after SIGKILL", p.name, p.pgid)
	}
}

// ending is how a program ended, in words.
func ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
