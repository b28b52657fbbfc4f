package rawjson

// A Cursor goes once over a text, from its start to its end, and so reads what is
// nested in it without looking for the ends of objects and arrays first.
type Cursor struct {
	text  []byte
	at    int
	begun bool // at is in the array that is gone over next
}

// Walk returns a cursor that is at the value of a text.
func Walk(text []byte) Cursor { return Cursor{text: text, at: skipSpace(text, 0)} }

// WalkBehind is Walk for an array whose elements up to the one that ends at that
// offset are left out, none if it is 0.
func WalkBehind(array []byte, end int) Cursor {
	if end == 0 {
		return Walk(array)
	}
	return Cursor{text: array, at: skipSeparator(array, end, ','), begun: true}
}

// Offset is where in the text the cursor is.
func (c *Cursor) Offset() int { return c.at }

// Kind tells the type of the value that the cursor is at, see [Kind].
func (c *Cursor) Kind() byte { return Kind(c.text[c.at:]) }

// Value returns the raw value that the cursor is at, and goes behind it.
func (c *Cursor) Value() []byte {
	start := c.at
	c.at = skipValue(c.text, start)
	return c.text[start:c.at:c.at]
}

// Elements iterates over an array, and over nothing if the value is none, and then
// goes behind it. At each element the cursor is at its value; what the loop does
// not go over is skipped. A loop that is left early leaves the cursor where it is.
func (c *Cursor) Elements(yield func() bool) {
	if !c.begun && !c.enter('[') {
		return
	}
	c.begun = false
	for c.at < len(c.text) && c.text[c.at] != ']' {
		start := c.at
		if !yield() || !c.pass(start) {
			return
		}
	}
	c.at = min(c.at+1, len(c.text))
}

// Fields is Elements for the members of an object: it gives their names, as
// [Fields] does.
func (c *Cursor) Fields(yield func(key []byte) bool) {
	if !c.enter('{') {
		return
	}
	for c.at < len(c.text) && c.text[c.at] == '"' {
		key, keyEnd := skipName(c.text, c.at)
		c.at = skipSeparator(c.text, keyEnd, ':')
		start := c.at
		if !yield(key) || !c.pass(start) {
			return
		}
	}
	c.at = min(c.at+1, len(c.text))
}

// enter goes into an object or array.
func (c *Cursor) enter(bracket byte) bool {
	if c.at >= len(c.text) || c.text[c.at] != bracket {
		return false
	}
	c.at = skipSpace(c.text, c.at+1)
	return true
}

// pass goes behind the value that starts at text[start], unless that has been done,
// and to what follows. It is false where there is no value.
func (c *Cursor) pass(start int) bool {
	if c.at == start {
		c.at = skipValue(c.text, start)
	}
	if c.at == start {
		return false
	}
	c.at = skipSeparator(c.text, c.at, ',')
	return true
}
