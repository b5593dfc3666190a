// Package pipeline runs work over many records on all cores and keeps their
// order.
//
// It is also the one place that deals with faults in mapped files. A file that
// is cut short while it is mapped makes the next access to its lost part fatal
// for the process, unless the goroutine asked for a panic instead. Guard does
// that and turns the panic into an error; Map does it for its workers, and the
// iterators of package dbfile for their own reading.
//
// The package imports no source, so that every source can import it.
package pipeline
