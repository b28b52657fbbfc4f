package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muxproxy/muxproxy/bench/rig"
)

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
	sum, err := rig.CPUTime(pid)
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

// allocated reads Go's memory statistics as they are exported to Prometheus.
func (p *process) allocated(ctx context.Context) (bytes, allocs float64, err error) {
	if p.metrics == "" {
		return 0, 0, nil
	}
	families, err := rig.Metrics(ctx, p.metrics)
	if err != nil {
		return 0, 0, err
	}
	value := func(name string) float64 { return families[name].GetMetric()[0].GetCounter().GetValue() }
	return value("go_memstats_alloc_bytes_total"), value("go_memstats_mallocs_total"), nil
}
