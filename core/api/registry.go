package api

import (
	"sync"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// registry hands out handles for things that live longer than a call. Handles are never reused and 0 is never one.
// The zero registry is ready to use.
type registry[T any] struct {
	mu   sync.RWMutex
	last uint64
	held map[uint64]T
}

func (r *registry[T]) add(v T) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = map[uint64]T{}
	}
	r.last++
	r.held[r.last] = v
	return r.last
}

func (r *registry[T]) find(handle uint64) (T, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	v, ok := r.held[handle]
	return v, ok
}

// get is find with an error that names the kind of thing.
func (r *registry[T]) get(handle uint64, kind string) (T, error) {
	v, ok := r.find(handle)
	if !ok {
		return v, fault.New(fault.NotFound, "it was released, or never started", "no %s has the handle %d", kind, handle)
	}
	return v, nil
}

func (r *registry[T]) remove(handle uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, handle)
}
