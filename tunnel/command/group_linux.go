package command

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// attributes put the program into a process group of its own, and have the
// kernel kill it when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// identify says what tells the group of this process, which leads it, from a
// later one with the same number.
func identify(pid int, mark string) (group, error) {
	boot, err := bootID()
	if err != nil {
		return group{}, err
	}
	leader, err := stat(pid)
	if err != nil {
		return group{}, err
	}
	return group{PGID: pid, Started: leader.started, Boot: boot, Mark: mark}, nil
}

// alive tells whether processes of this very group are there. Its leader is
// known by when it was started. When the leader has gone, which it has if it
// died with the daemon, the others are known by the mark in their environment.
func (g group) alive() bool {
	if boot, err := bootID(); err != nil || boot != g.Boot || g.PGID <= 1 {
		return false
	}
	if leader, err := stat(g.PGID); err == nil {
		return leader.started == g.Started
	}
	for pid := range members(g.PGID) {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && g.Mark != "" && bytes.Contains(environment, []byte(g.Mark)) {
			return true
		}
	}
	return false
}

// inhabited tells whether anybody runs in the group. The dead whom nobody has
// waited for are in it too, for ever under a bad init.
func inhabited(pgid int) bool {
	if syscall.Kill(-pgid, 0) == syscall.ESRCH {
		return false
	}
	for range members(pgid) {
		return true
	}
	return false
}

// members are the processes of the group that are not dead.
func members(pgid int) iter.Seq[int] {
	return func(yield func(int) bool) {
		processes, _ := os.ReadDir("/proc")
		for _, p := range processes {
			pid, err := strconv.Atoi(p.Name())
			if err != nil {
				continue
			}
			if s, err := stat(pid); err == nil && s.pgid == pgid && s.state != "Z" && s.state != "X" && !yield(pid) {
				return
			}
		}
	}
}

// status is what /proc says of a process.
type status struct {
	state   string
	pgid    int
	started uint64 // clock ticks since the machine was
}

func stat(pid int) (status, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return status{}, err
	}
	// The name of the program, in parentheses, may have spaces and parentheses
	// in it. The fields after it are proc(5)'s from the third on: 3, 5 and 22.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	const state, pgrp, starttime = 0, 2, 19
	if len(fields) <= starttime {
		return status{}, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	pgid, badGroup := strconv.Atoi(fields[pgrp])
	started, badTime := strconv.ParseUint(fields[starttime], 10, 64)
	return status{state: fields[state], pgid: pgid, started: started}, errors.Join(badGroup, badTime)
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(id)), err
}
