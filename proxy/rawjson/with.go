package rawjson

// With makes the same edits as [Object.Apply], for callers who go on with the
// result: it knows where the members are now without scanning the text again.
// Nothing in it aliases o or the edits.
func (o Object) With(edits []Edit) Object {
	var room [16]splice
	splices := o.splices(edits, room[:0])
	src := o.join(splices)
	members := make([]Member, 0, len(o.Members)+len(edits))
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
	return Object{Src: src, Members: members}
}

func memberAt(src []byte, start, valueStart, valueEnd int) Member {
	key := unescape(src[start:skipString(src, start)])
	return Member{Key: key, Start: start, ValueStart: valueStart, ValueEnd: valueEnd}
}
