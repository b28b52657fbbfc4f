package registry

// reclaim drops ended traces until they fit into memory and reports whether they do: the ones that were read first, among them those
// that ended first.
func (r *Registry) reclaim() bool {
	if !r.memory.over() {
		return true
	}
	if r.journals() {
		return false // ended traces are on disk, and those that could not be written there are not to be lost
	}
	r.evicting.Lock()
	defer r.evicting.Unlock()
	for _, read := range []bool{true, false} {
		for _, e := range r.evictable(read) {
			if !r.memory.over() {
				return true
			}
			if r.dropTrace(e) {
				r.mu.Lock()
				r.evicted++
				r.mu.Unlock()
			}
		}
	}
	return !r.memory.over()
}

// evictable returns the ended sessions whose trace was read, or was not, in the order they ended.
func (r *Registry) evictable(read bool) []*entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var entries []*entry
	for place := r.ended.Front(); place != nil; place = place.Next() {
		if e := place.Value.(*entry); e.session.read.Load() == read {
			entries = append(entries, e)
		}
	}
	return entries
}
