package controlplane

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxBody = 1 << 20

// A reply is what a request is answered with, after a while.
type reply struct {
	status int
	body   []byte
	header http.Header
	after  time.Duration
}

func refuse(status int, detail any) reply { return reply{status: status, body: problem(detail)} }

func encode(status int, v any) reply {
	body, err := json.Marshal(v)
	if err != nil {
		return refuse(http.StatusInternalServerError, err.Error())
	}
	return reply{status: status, body: body}
}

// handle answers one operation of the API: authorised, counted, and with the
// fault that it is to meet.
func (c *ControlPlane) handle(op Op, act func(r *http.Request, key string, body []byte) reply) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f := c.fault(op) // before anybody can know that the request is here
		c.count(op)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return
		}
		if f != nil && !f.Late && f.serve(w, r) {
			return
		}
		key, ok := c.key(r)
		if !ok {
			answer(w, http.StatusUnauthorized, problem("Could not validate credentials"))
			return
		}
		reply := act(r, key, body)
		if f != nil && f.Late && f.serve(w, r) {
			return
		}
		if !wait(r, reply.after) {
			return
		}
		maps.Copy(w.Header(), reply.header)
		answer(w, reply.status, reply.body)
	}
}

func answer(w http.ResponseWriter, status int, body []byte) {
	if w.Header().Get("Content-Type") == "" && len(body) > 0 {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have left
}

func (c *ControlPlane) count(op Op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counter := map[Op]*int{
		Create: &c.counts.Creates, Get: &c.counts.Gets, Delete: &c.counts.Deletes, List: &c.counts.Lists,
		BulkDelete: &c.counts.BulkDeletes, Login: &c.counts.Logins, NewProxy: &c.counts.Proxies,
		CloseProxy: &c.counts.ProxiesClosed, Ping: &c.counts.Pings, NewWorkConn: &c.counts.WorkConns,
	}[op]
	if counter != nil {
		*counter++
	}
}

// create makes a tunnel at once and answers after the delay that is its turn:
// a client that gives up meanwhile has a tunnel that it does not know of.
func (c *ControlPlane) create(_ *http.Request, key string, body []byte) reply {
	var in creation
	if err := json.Unmarshal(body, &in); err != nil {
		return invalid("body", err.Error())
	}
	if in.LocalPort < 1 || in.LocalPort > math.MaxUint16 {
		return invalid("local_port", "Input should be between 1 and 65535")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	if after := c.limited(key); after > 0 {
		c.counts.RateLimited++
		refusal := refuse(http.StatusTooManyRequests, "Too many tunnel starts")
		if !c.options.NoRetryAfter {
			seconds := strconv.Itoa(int(math.Ceil(after.Seconds())))
			refusal.header = http.Header{"Retry-After": {seconds}}
		}
		return refusal
	}
	if limit := c.options.MaxTunnels; limit > 0 && c.live(key) >= limit {
		return refuse(http.StatusBadRequest, fmt.Sprintf("You have reached the maximum number of tunnels (%d).", limit))
	}
	now := time.Now()
	t := &Tunnel{
		ID: newID(), Name: in.Name, LocalPort: in.LocalPort, Labels: in.Labels, TeamID: in.TeamID, Status: Pending,
		CreatedAt: now, ExpiresAt: now.Add(c.options.Lifetime), BindingSecret: newID(), key: key, awaySince: now,
	}
	t.url = strings.ReplaceAll(c.options.URL, "{id}", t.ID)
	c.tunnels[t.ID] = t
	c.order = append(c.order, t.ID)
	out := t.record()
	out.credentials = &credentials{c.options.FRPToken, t.BindingSecret, c.options.ServerHost, c.options.ServerPort}
	made := encode(http.StatusCreated, out)
	if n := len(c.options.Delays); n > 0 {
		made.after = c.options.Delays[c.counts.Created%n]
	}
	c.counts.Created++
	return made
}

// invalid is a refusal in the shape that a request of the wrong shape gets.
func invalid(field, message string) reply {
	detail := []map[string]any{{"type": "value_error", "loc": []string{"body", field}, "msg": message}}
	return refuse(http.StatusUnprocessableEntity, detail)
}

func notFound() reply { return refuse(http.StatusNotFound, "Tunnel not found") }

// live counts the key's tunnels. The caller holds mu.
func (c *ControlPlane) live(key string) int {
	n := 0
	for _, t := range c.tunnels {
		if t.key == key && !t.Status.Terminal() {
			n++
		}
	}
	return n
}

// find is the key's tunnel of that id. The caller holds mu.
func (c *ControlPlane) find(id, key string) (*Tunnel, bool) {
	c.expire()
	t, ok := c.tunnels[id]
	return t, ok && t.key == key
}

func (c *ControlPlane) get(r *http.Request, key string, _ []byte) reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.find(r.PathValue("id"), key)
	if !ok {
		return notFound()
	}
	return encode(http.StatusOK, t.record())
}

// delete leaves the record, which says that the tunnel is over.
func (c *ControlPlane) delete(r *http.Request, key string, _ []byte) reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.find(r.PathValue("id"), key)
	if !ok || t.Status == Terminated {
		return notFound()
	}
	t.end(Terminated)
	return reply{status: http.StatusNoContent}
}

func (c *ControlPlane) list(r *http.Request, key string, _ []byte) reply {
	query := r.URL.Query()
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(query.Get(name)); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	page, perPage := number("page", 1), min(number("perPage", 50), 100)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	found := []record{}
	for _, id := range slices.Backward(c.order) {
		t := c.tunnels[id]
		status := query.Get("status")
		if t.key != key || !t.has(query["labels"]) || t.TeamID != query.Get("teamId") ||
			status == "" && t.Status == Terminated || status != "" && !strings.EqualFold(status, string(t.Status)) {
			continue
		}
		found = append(found, t.record())
	}
	from, to := min((page-1)*perPage, len(found)), min(page*perPage, len(found))
	return encode(http.StatusOK, map[string]any{
		"tunnels": found[from:to], "total": len(found), "page": page, "per_page": perPage, "has_next": to < len(found),
	})
}

// bulkDelete deletes by id, or all that the filters leave.
func (c *ControlPlane) bulkDelete(_ *http.Request, key string, body []byte) reply {
	var in deletion
	if err := json.Unmarshal(body, &in); err != nil {
		return invalid("body", err.Error())
	}
	if in.Status != "" && len(in.IDs) > 0 {
		return refuse(http.StatusBadRequest, "status cannot be combined with tunnel_ids")
	}
	if in.AllUsers && in.TeamID == "" {
		return refuse(http.StatusBadRequest, "all_users requires teamId")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire()
	ids := in.IDs
	if len(ids) == 0 {
		for _, id := range c.order {
			t := c.tunnels[id]
			if t.key == key && !t.Status.Terminal() && t.has(in.Labels) && (in.TeamID == "" || t.TeamID == in.TeamID) &&
				(in.Status == "" || strings.EqualFold(in.Status, string(t.Status))) {
				ids = append(ids, id)
			}
		}
	}
	succeeded, failed := []string{}, []map[string]string{}
	for _, id := range ids {
		if t, ok := c.tunnels[id]; ok && t.key == key && t.Status != Terminated {
			t.end(Terminated)
			succeeded = append(succeeded, id)
		} else {
			failed = append(failed, map[string]string{"tunnel_id": id, "error": "Tunnel not found"})
		}
	}
	return encode(http.StatusOK, map[string]any{
		"succeeded": succeeded, "failed": failed, "message": fmt.Sprintf("Deleted %d tunnels", len(succeeded)),
	})
}
