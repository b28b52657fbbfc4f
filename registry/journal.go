package registry

import "iter"

// Journal keeps what has to outlast the process. Its methods may be called by any number of goroutines.
type Journal interface {
	// Submit puts an entry into the queue and returns. Entries are written in the order in which they were submitted. The error is
	// [ErrNotWritten], and none of the entry's functions is called, only once the journal is closed.
	Submit(Entry) error
	// LastSession returns the highest number that a session has, or had as long as anything of it is kept.
	LastSession() (uint32, error)
	// Sessions yields all sessions that are kept, in the order of their numbers.
	Sessions() iter.Seq2[SessionRow, error]
	// Trace returns what is kept of a session's calls, as of one moment. The error is [ErrNotFound] once it was dropped.
	Trace(session uint32) (TraceRows, error)
	// Turn returns what is kept of one turn: its row and the parts that it is made of. The index counts a session's turns from 0. The
	// error is [ErrNotFound] if there is none, and as that of Trace.
	Turn(session uint32, index int) (TraceRows, error)
}

// Entry is something to be written wholly or not at all. Its functions are called by one goroutine, in the order of the entries, and
// must not block.
type Entry struct {
	// Urgent says that somebody waits for the entry. Others are written with the next that is urgent, or a moment later.
	Urgent bool
	// Rows returns what there is to write at the moment of writing, nil if that is nothing any more.
	Rows func() *Rows
	// Done is called once, when what Rows returned is written or has failed. An error that is an [ErrNotWritten] may pass.
	Done func(error)
}

// Rows are changes to what is kept of one session. Fields that are zero change nothing.
type Rows struct {
	Session uint32 // its number

	Created *SessionRow
	Secret  []byte
	Spec    []byte
	State   []byte

	Parts       []PartRow // bases before what is made of them
	Started     *CallRow  // in flight; the one with the same id is replaced
	StartedOver uint32    // the id of a started call that has become a turn or failed
	Call        *CallRow
	Delivered   *DeliveryRow

	DroppedParts []uint32
	DroppedCalls []uint32
	TraceDropped bool // all parts and calls
	Forgotten    bool // the session too
}

// SessionRow is a session as it is kept. Spec and State are texts of the registry's.
type SessionRow struct {
	Number uint32
	ID     string
	Secret []byte // its SHA-256
	Spec   []byte
	State  []byte
	Traced bool // its trace has not been dropped
}

// PartRow is a run of bytes: the first Prefix bytes of another part, then Middle, then the last Suffix bytes of the other.
type PartRow struct {
	ID             uint32
	Base           uint32 // 0 is none
	Prefix, Suffix int
	Middle         []byte
}

// CallRow is a call as it is kept. Those of turns and failed calls have ids in the order in which they became that.
type CallRow struct {
	ID        uint32
	Turn      bool
	About     []byte // a text of the registry's
	Request   []byte // of which parts its request is made
	Body      []byte // the response, or what was received
	Shared    []byte // of which parts a run of the response is made that is not in Body
	Delivered *bool
}

// PartIDs returns the ids of the parts that the call's request and response are made of, but not those of their bases.
func (c *CallRow) PartIDs() (ids []uint32) {
	for _, raw := range [][]byte{c.Request, c.Shared} {
		ids = appendPartIDs(ids, raw)
	}
	return ids
}

// DeliveryRow says whether a turn was delivered.
type DeliveryRow struct {
	Call      uint32
	Delivered bool
}

// TraceRows is what is kept of a session's calls.
type TraceRows struct {
	Parts   []PartRow // by id
	Started []CallRow // in flight, or were when the process died
	Calls   []CallRow // by id
}
