package rig_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/muxproxy/muxproxy/bench/rig"
)

// shell runs a script that says when it is up.
func shell(t *testing.T, script string, stopFor time.Duration) *rig.Process {
	t.Helper()
	said, saying := io.Pipe()
	p, err := rig.Start(t.Context(), rig.Program{
		Args: []string{"sh", "-c", script}, Dir: t.TempDir(), Env: []string{"WORD=up"}, Stdout: saying, StopFor: stopFor,
	})
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	return p
}

func gone(dir string) bool {
	_, err := os.Stat(dir)
	return os.IsNotExist(err)
}

func TestProcessThatEndsWhenItIsToldEndsWell(t *testing.T) {
	p := shell(t, `trap "exit 0" INT; echo $WORD; touch here; while :; do sleep 0.01; done`, 10*time.Second)
	if err := p.Stop(); err != nil || !gone(p.Dir) {
		t.Errorf("got %v, folder gone: %t", err, gone(p.Dir))
	}
}

func TestProcessThatEndsBadlyOrNotAtAllIsSaidTo(t *testing.T) {
	for name, script := range map[string]string{
		"badly":      `trap "exit 3" INT; echo $WORD; while :; do sleep 0.01; done`,
		"not at all": `trap "" INT; echo $WORD; while :; do sleep 0.01; done`,
	} {
		p := shell(t, script, 200*time.Millisecond)
		err := p.Stop()
		if _, exited := errors.AsType[*exec.ExitError](err); !exited || !gone(p.Dir) {
			t.Errorf("%s: got %v, folder gone: %t", name, err, gone(p.Dir))
		}
	}
}

func TestKillLeavesTheFolder(t *testing.T) {
	p := shell(t, `touch here; echo $WORD; while :; do sleep 0.01; done`, time.Second)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "here")); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil || !gone(p.Dir) {
		t.Errorf("got %v, folder gone: %t", err, gone(p.Dir))
	}
}

func TestUsageOfAProcessIsKnown(t *testing.T) {
	pid := os.Getpid()
	took, err := rig.CPUTime(pid)
	if err != nil || took <= 0 {
		t.Errorf("processor time: got %s, %v", took, err)
	}
	memory, err := rig.Resident(pid)
	if err != nil || memory < 1<<20 {
		t.Errorf("memory: got %d, %v", memory, err)
	}
}
