// Package latemetrics holds back the registration of Prometheus metrics until
// somebody wants them.
//
// Linking the etcd server registers more than a hundred metrics before main runs,
// at every start of the program, whatever the command: about 5 ms, more than all
// the rest. Only a sandbox ever serves them.
//
// Go initialises packages in the order of their import paths as far as their
// imports allow. This package imports Prometheus alone and its path sorts before
// those of etcd, so its init runs before etcd registers anything. The program
// that wants the effect imports it.
package latemetrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// held is a Registerer that only remembers.
type held struct {
	mu         sync.Mutex
	real       prometheus.Registerer
	collectors []prometheus.Collector
	released   bool
}

var metrics = &held{}

func init() {
	metrics.real = prometheus.DefaultRegisterer
	prometheus.DefaultRegisterer = metrics
}

func (h *held) Register(c prometheus.Collector) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.real.Register(c)
	}
	h.collectors = append(h.collectors, c)
	return nil
}

func (h *held) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := h.Register(c); err != nil {
			panic(err) // what MustRegister is for
		}
	}
}

func (h *held) Unregister(c prometheus.Collector) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.real.Unregister(c)
	}
	for i, k := range h.collectors {
		if k == c {
			h.collectors = append(h.collectors[:i], h.collectors[i+1:]...)
			return true
		}
	}
	return false
}

// Release registers what was held back and lets later registrations pass. The
// first error is returned after all were tried; a second call does nothing. What was
// registered twice meanwhile, as servers do that start one after the other, is no
// error: whoever does that expects the first one to stay.
func Release() error {
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	if metrics.released {
		return nil
	}
	metrics.released = true
	var first error
	for _, c := range metrics.collectors {
		err := metrics.real.Register(c)
		if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); twice {
			continue
		}
		if err != nil && first == nil {
			first = err
		}
	}
	metrics.collectors = nil
	return first
}

// Held returns how many metrics wait.
func Held() int {
	metrics.mu.Lock()
	defer metrics.mu.Unlock()
	return len(metrics.collectors)
}
