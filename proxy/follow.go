package proxy

import (
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/dialect"
	"github.com/muxproxy/muxproxy/registry"
)

// follow finds the turn that a request says it continues, nil if it does not
// say. A request that refers to what its session has not received is refused:
// all sessions share one credential upstream, by which it would be found there.
func follow(session *registry.Session, references []dialect.Reference) (*int, error) {
	var follows *int
	for _, r := range references {
		index, ok := session.Received(r.ID)
		if !ok {
			return nil, &dialect.RequestError{
				Param: r.Param, Message: fmt.Sprintf("%s refers to %.100q, which this session has not received", r.Param, r.ID),
			}
		}
		if r.Continues && (follows == nil || index > *follows) {
			follows = &index
		}
	}
	return follows, nil
}
