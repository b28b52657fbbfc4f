package journal

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/muxproxy/muxproxy/registry"
)

// fileName is the database's within the state directory. SQLite keeps its log and index beside it.
const fileName = "journal.db"

// Options of a [Journal]. Dir is required.
type Options struct {
	// Dir is the state directory. It is made if it is missing, with access for its owner alone.
	Dir string
	// Sync makes each transaction wait until it has reached the disk itself, so that it outlasts the machine's death too. Otherwise it
	// outlasts the process's: the operating system has it.
	Sync bool
	// Committed, if set, is called with the time that each transaction took.
	Committed func(time.Duration)
	// Failing, if set, is called with the error when writing begins to fail, and with nil when it works again.
	Failing func(error)
	// Linger is how long entries that nobody waits for may wait for company. Default 20 ms.
	Linger time.Duration
}

// Journal is a [registry.Journal] on disk. Entries that are submitted are written while [Journal.Run] runs.
type Journal struct {
	options     Options
	lock        *lock
	db          *sql.DB
	readers     reader
	checkpoints *checkpointer
	writer      *writer // belongs to Run

	mu     sync.Mutex
	queue  []registry.Entry
	urgent int       // entries in the queue that somebody waits for
	oldest time.Time // when the first of the queue came
	closed bool      // nothing is taken any more
	wake   chan struct{}

	state state
	house house
}

var _ registry.Journal = (*Journal)(nil)

// Open opens the journal of a state directory, or makes one. It fails if another process has it open, if the directory is on a network
// file system, or if a newer version of the program has written it. The caller must close it.
func Open(ctx context.Context, options Options) (j *Journal, err error) {
	options.Linger = cmp.Or(options.Linger, 20*time.Millisecond)
	if err := makeDir(options.Dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j = &Journal{options: options, wake: make(chan struct{}, 1)}
	if j.lock, err = acquire(options.Dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := j.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open journal %s: %w", options.Dir, err), j.Close())
	}
	return j, nil
}

// makeDir makes the directory, which nobody else may look into, and checks that SQLite's locks work there.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if name := networkFileSystem(dir); name != "" {
		return fmt.Errorf("state directory %s is on a network file system (%s), on which locks and syncs cannot be relied on: use a local disk", dir, name)
	}
	return nil
}

func (j *Journal) open(ctx context.Context) error {
	path := filepath.Join(j.options.Dir, fileName)
	// SQLite would make the file readable for everyone.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	synchronous := "NORMAL"
	if j.options.Sync {
		synchronous = "FULL"
	}
	// The pragmas are for each connection. There are two: the writer's, and the one that makes checkpoints.
	j.db, err = connect(path, url.Values{
		"_pragma": {
			"busy_timeout(5000)", "auto_vacuum(INCREMENTAL)", "journal_mode(WAL)", "synchronous(" + synchronous + ")",
			"wal_autocheckpoint(0)", "journal_size_limit(4194304)", "cache_size(-16384)", "temp_store(MEMORY)",
		},
	})
	if err != nil {
		return err
	}
	j.db.SetMaxOpenConns(2)
	j.db.SetMaxIdleConns(2)
	j.checkpoints = newCheckpointer(j.db)
	if err := migrate(ctx, j.db); err != nil {
		return err
	}
	if j.readers.db, err = openReaders(path); err != nil {
		return err
	}
	if j.writer, err = newWriter(ctx, j.db); err != nil {
		return err
	}
	return nil
}

func connect(path string, query url.Values) (*sql.DB, error) {
	name := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: query.Encode()}
	connector, err := sqlite.NewConnector(name.String())
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Close lets go of the state directory. It is called after Run has returned.
func (j *Journal) Close() error {
	var errs []error
	j.stop()
	if j.writer != nil {
		errs = append(errs, j.writer.close())
	}
	if j.readers.db != nil {
		errs = append(errs, j.readers.db.Close())
	}
	if j.db != nil {
		errs = append(errs, j.db.Close())
	}
	if j.lock != nil {
		errs = append(errs, j.lock.release())
	}
	return errors.Join(errs...)
}
