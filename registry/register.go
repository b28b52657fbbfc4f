package registry

import "time"

// Registration is one registered session.
type Registration struct {
	Session *Session
	Secret  string // the only time it is told
	Created bool   // false if this very registration had been made before
}

// Register makes a session of every spec, or of none. The same id with the same secret, given by the client, and the same digest as
// a live session's is that session, so that registering can be retried.
//
// The error is an [InvalidError], [ErrDuplicateID], [ErrTooManySessions], [ErrTraceMemoryFull], [ErrDraining] or [ErrNotWritten]. If there are several
// specs it comes in a [SpecError] where it is the fault of one.
func (r *Registry) Register(specs ...Spec) ([]Registration, error) {
	if r.draining.Load() {
		return nil, ErrDraining
	}
	drafts := make([]draft, len(specs))
	for i := range specs {
		d, err := r.draft(&specs[i])
		if err != nil {
			return nil, specError(len(specs), i, err)
		}
		drafts[i] = d
	}
	registrations, err := r.enroll(drafts, r.reclaim())
	if err != nil {
		return nil, err
	}
	if err := r.saveSessions(registrations); err != nil {
		for _, registration := range registrations {
			if registration.Created {
				r.Discard(registration.Session.id)
			}
		}
		return nil, err
	}
	return registrations, nil
}

// Room says why so many more sessions could not be registered now: [ErrDraining], [ErrTooManySessions] or [ErrTraceMemoryFull]; nil
// if they could. It is for who would prepare a registration at some cost; [Registry.Register] decides.
func (r *Registry) Room(sessions int) error {
	memoryLeft := r.reclaim()
	r.mu.RLock()
	live := r.live
	r.mu.RUnlock()
	switch {
	case r.draining.Load():
		return ErrDraining
	case r.options.MaxSessions > 0 && live+sessions > r.options.MaxSessions:
		return ErrTooManySessions
	case !memoryLeft:
		return ErrTraceMemoryFull
	}
	return nil
}

// draft is a session that is not in the registry yet.
type draft struct {
	session *Session
	secret  string
	hash    secretHash
	given   bool // the client gave the secret
}

func (r *Registry) draft(given *Spec) (draft, error) {
	spec := given.clone()
	if err := spec.validate(); err != nil {
		return draft{}, err
	}
	d := draft{secret: given.Secret, given: given.Secret != ""}
	switch {
	case !d.given:
		d.secret = newSecret()
	case !validSecret(d.secret):
		return draft{}, &InvalidError{"secret", "must have at least 22 characters of A-Z a-z 0-9 _ - . ~"}
	}
	d.hash = hashSecret(d.secret)
	if spec.ID == "" {
		spec.ID = NewID()
	}
	d.session = newSession(r, &spec)
	return d, nil
}

// enroll puts all drafts into the maps, or none.
func (r *Registry) enroll(drafts []draft, memoryLeft bool) ([]Registration, error) {
	registrations := make([]Registration, len(drafts))
	ids := make(map[string]bool, len(drafts))
	secrets := make(map[secretHash]bool, len(drafts))
	r.mu.Lock()
	defer r.mu.Unlock()
	created := 0
	for i := range drafts {
		d := &drafts[i]
		existing, err := r.findRepeated(d)
		switch {
		case err != nil:
			return nil, specError(len(drafts), i, err)
		case ids[d.session.id]:
			return nil, specError(len(drafts), i, ErrDuplicateID)
		case secrets[d.hash]:
			return nil, specError(len(drafts), i, errSecretTaken())
		}
		ids[d.session.id], secrets[d.hash] = true, true
		registrations[i] = Registration{Session: existing, Secret: d.secret}
		if existing == nil {
			registrations[i].Session, registrations[i].Created = d.session, true
			created++
		}
	}
	switch {
	case created == 0:
		return registrations, nil
	case r.options.MaxSessions > 0 && r.live+created > r.options.MaxSessions:
		return nil, ErrTooManySessions
	case !memoryLeft:
		return nil, ErrTraceMemoryFull
	}
	for i, registration := range registrations {
		if registration.Created {
			r.insert(registration.Session, drafts[i].hash)
		}
	}
	return registrations, nil
}

// findRepeated returns the live session that d would register again, nil if d is new.
func (r *Registry) findRepeated(d *draft) (*Session, error) {
	if e := r.byID[d.session.id]; e != nil {
		same := d.given && e.stone == nil && e.secret == d.hash && e.session.ended.Load() == nil &&
			e.session.digest == d.session.digest
		if !same {
			return nil, ErrDuplicateID
		}
		return e.session, nil
	}
	if r.bySecret[d.hash] != nil {
		return nil, errSecretTaken()
	}
	return nil, nil
}

func (r *Registry) insert(s *Session, hash secretHash) {
	e := s.entry
	e.secret = hash
	r.byID[s.id] = e
	r.bySecret[hash] = e
	r.order.add(s)
	e.row = s.row()
	r.live++
	r.registered++
	r.schedule.set(&e.alarm, s.createdAt.Add(s.spec.Lease))
}

// Discard undoes a registration whose answer could not be delivered. It leaves no trace and no tombstone. It does nothing to a
// session that has ended, or that does not exist.
func (r *Registry) Discard(id string) {
	r.mu.RLock()
	e := r.byID[id]
	var session *Session
	if e != nil && e.stone == nil {
		session = e.session
	}
	r.mu.RUnlock()
	if session == nil || !session.beginEnd(ReasonDiscarded, time.Now()) {
		return
	}
	summary := session.seal()
	r.mu.Lock()
	r.live--
	r.reasons[summary.EndReason]++
	r.remove(e)
	r.mu.Unlock()
	session.store.drop()
	r.noteForgotten(e.row)
	r.schedule.clear(&e.alarm)
	r.options.Ended(id)
	close(session.buried)
}

// remove takes an entry out of the maps and lists.
func (r *Registry) remove(e *entry) {
	if r.byID[e.id] != e {
		return
	}
	delete(r.byID, e.id)
	delete(r.bySecret, e.secret)
	if e.session != nil {
		r.order.remove(e.session)
	}
}

func errSecretTaken() error { return &InvalidError{"secret", "belongs to another session"} }

func specError(specs, i int, err error) error {
	if specs > 1 {
		return &SpecError{Index: i, Err: err}
	}
	return err
}
