package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"
)

// The target has one core for itself; load and upstream share the other.
const (
	targetCore = 0
	loadCore   = 1
)

func pin(pid, core int) error {
	var set unix.CPUSet
	set.Set(core)
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			return err
		}
	}
	return nil
}

// usage is what a process has taken so far.
type usage struct {
	cpu           time.Duration
	bytes, allocs float64
}

func (u usage) since(before usage, n float64) sample {
	return sample{
		CPU:    float64(u.cpu-before.cpu) / float64(time.Microsecond) / n,
		Bytes:  (u.bytes - before.bytes) / n,
		Allocs: (u.allocs - before.allocs) / n,
	}
}

func (p *process) usage(ctx context.Context) (u usage, err error) {
	if p.pid == 0 {
		return usage{}, nil
	}
	if u.bytes, u.allocs, err = p.allocated(ctx); err != nil {
		return usage{}, err
	}
	u.cpu, err = treeTime(p.pid)
	return u, err
}

// treeTime is the processor time of a process and of all that descend from it.
// Those that have ended are not counted: none does while a target is measured.
func treeTime(pid int) (time.Duration, error) {
	sum, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // a thread that has ended
		}
		if err != nil {
			return 0, err
		}
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return 0, err
			}
			of, err := treeTime(child)
			if err != nil {
				return 0, err
			}
			sum += of
		}
	}
	return sum, nil
}

// cpuTime is the user and system time of a process, by its own clock
// (clock_getcpuclockid(3)), which is exact where /proc counts ticks.
func cpuTime(pid int) (time.Duration, error) {
	const schedulerClock = 2
	clock := int32(^pid)<<3 | schedulerClock
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// allocated reads Go's memory statistics as they are exported to Prometheus.
func (p *process) allocated(ctx context.Context) (bytes, allocs float64, err error) {
	if p.metrics == "" {
		return 0, 0, nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.metrics, nil)
	if err != nil {
		return 0, 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, 0, err
	}
	value := func(name string) float64 { return families[name].GetMetric()[0].GetCounter().GetValue() }
	return value("go_memstats_alloc_bytes_total"), value("go_memstats_mallocs_total"), nil
}

// resident is the memory a process has in core, in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
