package dialect

// Added is what muxproxy put into a request for itself. The answer is freed of
// what that causes before the harness sees it.
type Added struct {
	Usage bool // the usage chunk of a stream
}

// The bits of Added. They are kept with turns and so must not change.
const (
	addedUsage uint32 = 1 << iota
)

// Bits is a in the form in which it is recorded.
func (a Added) Bits() uint32 {
	var bits uint32
	if a.Usage {
		bits |= addedUsage
	}
	return bits
}

// AddedOf is the inverse of Bits. Bits that it does not know are left out.
func AddedOf(bits uint32) Added {
	return Added{Usage: bits&addedUsage != 0}
}

// Fields names the request fields that Added stands for, as an upstream that
// does not know them would name them in its refusal.
func (a Added) Fields() []string {
	if !a.Usage {
		return nil
	}
	return []string{"stream_options", "include_usage"}
}
