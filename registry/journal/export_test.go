package journal

import (
	"context"
	"fmt"
)

// NetworkFileSystemOf is what the magic number of a file system is taken for.
var NetworkFileSystemOf = networkFileSystemOf

// Schema is the schema of this version.
func Schema() int { return len(migrations()) }

// LimitPages makes the disk full: SQLite says so when the database would have more pages.
func (j *Journal) LimitPages(n int) error {
	_, err := j.writer.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", n))
	return err
}
