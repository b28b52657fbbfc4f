package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

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

// Run kills what programs of daemons that were killed have left running, at
// once and again and again until ctx is done. It kills no group that it does
// not know to be the one that was started, and never fails.
func (d *Driver) Run(ctx context.Context) error {
	look := time.NewTicker(ledger.LookAgain)
	defer look.Stop()
	for {
		if err := d.cleanUp(); err != nil {
			d.o.Logger.Warn().Err(err).Msg("what a killed process left running could not be cleaned up in full")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// cleanUp kills what is on record as left.
func (d *Driver) cleanUp() error {
	orphans, err := d.o.Ledger.Orphans(kind)
	for _, o := range orphans {
		var g group
		if json.Unmarshal(o.Data, &g) == nil && g.alive() {
			if failed := syscall.Kill(-g.PGID, syscall.SIGKILL); failed != nil && !errors.Is(failed, syscall.ESRCH) {
				err = errors.Join(err, fmt.Errorf("kill process group %d: %w", g.PGID, failed))
				continue
			}
			d.o.Logger.Info().Int("process_group", g.PGID).Msg("killed what a program of a killed process left running")
		}
		err = errors.Join(err, o.Done())
	}
	return err
}
