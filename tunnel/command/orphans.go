package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"syscall"

	"github.com/muxproxy/muxproxy/tunnel/ledger"
)

const (
	// kind is what the ledger calls our process groups.
	kind = "process-group"
	// markName is the variable by which processes are known as ours.
	markName = "MUXPROXY_TUNNEL_PROCESS"
)

// group is a process group as the ledger keeps it.
type group struct {
	PGID    int    `json:"pgid"`
	Started uint64 `json:"started"` // of its leader, clock ticks since boot
	Boot    string `json:"boot"`
	Mark    string `json:"mark"`
}

func (g group) record(l *ledger.Ledger) error {
	if g.PGID == 0 {
		return nil
	}
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return l.Record(kind, strconv.Itoa(g.PGID), data)
}

// CleanUp kills what programs of daemons that were killed have left running.
// It kills no group that it does not know to be the one that was started.
func CleanUp(l *ledger.Ledger) error {
	orphans, err := l.Orphans(kind)
	for _, o := range orphans {
		var g group
		if json.Unmarshal(o.Data, &g) == nil && g.alive() {
			if failed := syscall.Kill(-g.PGID, syscall.SIGKILL); failed != nil && !errors.Is(failed, syscall.ESRCH) {
				err = errors.Join(err, fmt.Errorf("kill process group %d: %w", g.PGID, failed))
				continue
			}
		}
		err = errors.Join(err, o.Done())
	}
	return err
}
