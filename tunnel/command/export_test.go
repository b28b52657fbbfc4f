package command

// Lines takes what a program printed, in pieces, apart.
func Lines(pieces ...[]byte) []string {
	var got []string
	l := lines{emit: func(line string) { got = append(got, line) }}
	for _, p := range pieces {
		_, _ = l.Write(p)
	}
	l.flush()
	return got
}

// MaxLine is how much of a line is kept.
const MaxLine = maxLine
