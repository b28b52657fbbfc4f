// Package journal keeps the registry's sessions and traces on disk, in one SQLite file.
//
// One goroutine writes ([Journal.Run]); all that has come in meanwhile becomes one transaction (group commit), so that the cost of one
// is shared by the calls that end at the same time. Nobody holds a lock while waiting for it. In WAL mode readers, such as
// [Journal.Trace] or another process with [OpenReader], neither wait for the writer nor hold it up.
//
// A transaction that fails changes nothing, and those who wait for it are told at once. What nobody waits for is tried again, so that
// the journal recovers by itself when the disk does.
package journal
