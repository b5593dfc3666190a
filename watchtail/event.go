package watchtail

import "github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"

// Origin tells how an event came to be.
type Origin uint8

// The origins of events.
const (
	Change   Origin = iota // a change, as it happened
	Listed                 // a key as it stood when a tail began with a list
	Resynced               // a change found by a list, in place of history that is gone
)

// String names an origin: "change", "list", "resync".
func (o Origin) String() string {
	switch o {
	case Listed:
		return "list"
	case Resynced:
		return "resync"
	}
	return "change"
}

// Event is one change as a tail hands it on. Its bytes are valid until the next revision.
type Event struct {
	keyspace.Event
	I, N   int // it is the Ith of N of its revision that were selected, from 1
	Origin Origin
}
