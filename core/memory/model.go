// Package memory answers from a recorded training step what the same step needs at another shape. A
// trace (package trace) holds the allocations and frees of a few segments; their common structure
// and a formula for each size (package template) make a segment of any shape, which is replayed
// (package replay) through a simulation of PyTorch's caching allocator. README.md
// follows one storage through all of it.
package memory

import (
	"sync"

	"github.com/asrconfig/asrconfig-go/core/memory/allocator"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/replay"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Model is a trace made ready for questions. It may be used by several goroutines at once.
type Model struct {
	about     map[string]any
	ops       []string
	modules   []string
	layers    []string // of the modules
	calls     []trace.Call
	templates *template.Set
	// observed players to be used again: what an answer needs is a few megabytes
	used sync.Pool
}

// New fits a checked trace (of trace.ReadFile or trace.Decode).
func New(t *trace.Trace) (*Model, error) {
	set, err := template.New(t)
	if err != nil {
		return nil, err
	}
	return &Model{about: t.About, ops: t.Ops, modules: t.Modules, layers: peak.Layers(t.Modules),
		calls: t.Calls, templates: set}, nil
}

// observed is a player with an observer, for a run of so many events.
func (m *Model) observed(settings allocator.Settings, gpu reduction.GPU,
	points, events int) *replay.Player {
	p, ok := m.used.Get().(*replay.Player)
	if !ok {
		p = replay.New(m.templates.Variables, settings, gpu)
		p.Observer = replay.NewObserver(len(m.modules), points, events)
		return p
	}
	o := p.Observer
	p.Reset(settings, gpu)
	p.Observer = o
	o.Reset(len(m.modules), points, events)
	return p
}
