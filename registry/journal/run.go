package journal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muxproxy/muxproxy/registry"
)

// retryAfter is how long what nobody waits for rests after a failure.
const retryAfter = time.Second

// Submit implements [registry.Journal].
func (j *Journal) Submit(e registry.Entry) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return fmt.Errorf("%w: the journal is closed", registry.ErrNotWritten)
	}
	if len(j.queue) == 0 {
		j.oldest = time.Now()
	}
	j.queue = append(j.queue, e)
	if e.Urgent {
		j.urgent++
	}
	wake := len(j.queue) == 1 || e.Urgent && j.urgent == 1
	j.mu.Unlock()
	if wake {
		j.rouse()
	}
	return nil
}

// rouse makes the writer look at what there is to do.
func (j *Journal) rouse() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// Run writes what is submitted. When ctx is done it takes nothing any more, writes what is left and returns nil.
func (j *Journal) Run(ctx context.Context) error {
	work := context.WithoutCancel(ctx) // what is half written is worth nothing
	var copying sync.WaitGroup
	copying.Go(func() { j.checkpoints.run(work, j.rouse) })
	defer copying.Wait()
	defer close(j.checkpoints.wanted)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			j.stop()
			j.write(work, j.take(true))
			return nil
		case <-j.wake:
		case <-timer.C:
		}
		j.write(work, j.take(false))
		timer.Reset(j.rest(work))
	}
}

// stop makes Submit refuse.
func (j *Journal) stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// take empties the queue if something in it is due, or in any case.
func (j *Journal) take(all bool) []registry.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.queue) == 0 || !all && j.urgent == 0 && time.Since(j.oldest) < j.patience() {
		return nil
	}
	batch := j.queue
	j.queue, j.urgent = nil, 0
	return batch
}

// patience is how long what nobody waits for may wait.
func (j *Journal) patience() time.Duration {
	if j.state.failing() != nil {
		return retryAfter
	}
	return j.options.Linger
}

// rest keeps the house, if there is time for that or it has waited for long, and returns how long to rest until something is due.
func (j *Journal) rest(ctx context.Context) time.Duration {
	more := false
	if !j.busy() || j.house.overdue() {
		more = j.keepHouse(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case more || j.urgent > 0:
		return 0
	case len(j.queue) > 0:
		return max(0, j.patience()-time.Since(j.oldest))
	case j.state.failing() != nil:
		return retryAfter
	default:
		return time.Minute
	}
}

func (j *Journal) busy() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.urgent > 0
}

// write writes a batch in as few transactions as its size allows.
func (j *Journal) write(ctx context.Context, batch []registry.Entry) {
	for len(batch) > 0 {
		batch = batch[j.transact(ctx, batch):]
	}
}

// transact writes the first entries of a batch in one transaction, tells them, and returns how many they were.
func (j *Journal) transact(ctx context.Context, batch []registry.Entry) int {
	start := time.Now()
	var t transaction
	n := 0
	for n < len(batch) && t.wants() {
		t.add(ctx, j.writer, batch[n].Rows())
		n++
	}
	t.end(ctx, j.writer)
	if t.begun || t.err != nil {
		j.settle(&t, time.Since(start))
	}
	for i, e := range batch[:n] {
		if i == n-1 && t.refused != nil {
			e.Done(t.refused)
			continue
		}
		e.Done(t.err)
	}
	return n
}

// settle notes how a transaction went.
func (j *Journal) settle(t *transaction, took time.Duration) {
	if t.err == nil {
		j.house.written(t)
		if j.options.Committed != nil {
			j.options.Committed(took)
		}
	}
	j.note(t.err)
}

// note notes whether something could be written.
func (j *Journal) note(err error) {
	if j.state.set(err) && j.options.Failing != nil {
		j.options.Failing(err)
	}
}
