package rawjson

// With makes the same edits as [Object.Apply], for callers who go on with the
// result: it knows where the members are now without scanning the text again.
// Nothing in it aliases o or the edits.
func (o Object) With(edits []Edit) Object {
	var room [16]splice
	splices := o.splices(edits, room[:0])
	return o.moved(o.join(splices), splices, nil)
}

// WithIn is With in place. The text of o begins at memory[at], and all of memory is
// the caller's to give away: the longest run without an edit stays where it is, and
// what is before and behind it moves. Without room enough for that it is With. The
// members stay in their slice if it has room.
//
// Neither o nor what aliases its text or its members may be used afterwards.
func (o Object) WithIn(memory []byte, at int, edits []Edit) Object {
	var room [16]splice
	splices := o.splices(edits, room[:0])
	n, from, to := longestRun(splices, len(o.Src))
	var scratch [2][256]byte
	head := o.appendJoined(scratch[0][:0], splices[:n], 0, from)
	tail := o.appendJoined(scratch[1][:0], splices[n:], to, len(o.Src))
	start, end := at+from-len(head), at+to+len(tail)
	if start < 0 || end > len(memory) {
		return o.moved(o.join(splices), splices, o.Members)
	}
	copy(memory[start:], head)
	copy(memory[at+to:], tail)
	return o.moved(memory[start:end:end], splices, o.Members)
}

// longestRun finds the longest stretch of a text of that length that no splice is in:
// it lies behind the first n of them.
func longestRun(splices []splice, length int) (n, from, to int) {
	begin := 0
	for i := 0; i <= len(splices); i++ {
		end := length
		if i < len(splices) {
			end = splices[i].from
		}
		if i == 0 || end-begin > to-from {
			n, from, to = i, begin, end
		}
		if i < len(splices) {
			begin = splices[i].to
		}
	}
	return n, from, to
}

// moved is the object whose text src is that of o with the splices made. Its members
// are in room, which may be those of o, where that is enough.
func (o Object) moved(src []byte, splices []splice, room []Member) Object {
	members := room[:0]
	if most := len(o.Members) + len(splices); cap(members) < most {
		members = make([]Member, 0, most)
	}
	next, shift := 0, 0 // splices before next have moved what follows by shift
	moved := func(offset int) int {
		for next < len(splices) && !splices[next].member && splices[next].to <= offset {
			shift += splices[next].growth()
			next++
		}
		return offset + shift
	}
	for _, m := range o.Members {
		start := moved(m.Start)
		if next < len(splices) && splices[next].from <= m.Start && m.ValueEnd <= splices[next].to {
			continue // deleted
		}
		members = append(members, memberAt(src, start, moved(m.ValueStart), moved(m.ValueEnd)))
	}
	moved(len(o.Src))
	same := o.canonical
	for i := range splices {
		same = same && (len(splices[i].value) == 0 || canonical(splices[i].value))
	}
	for _, s := range splices[next:] {
		start := s.from + shift
		if s.comma {
			start++
		}
		value := skipString(src, start) + len(":")
		end := value + len(s.value)
		members = append(members, memberAt(src, start, value, end))
		shift = end - s.from
	}
	return Object{Src: src, Members: members, canonical: same}
}

func memberAt(src []byte, start, valueStart, valueEnd int) Member {
	key := unescape(src[start:skipString(src, start)])
	return Member{Key: key, Start: start, ValueStart: valueStart, ValueEnd: valueEnd}
}
