// Package memory answers from a recorded training step what the same step needs at another shape. A
// trace (package trace) holds the allocations and frees of a few segments; their common structure
// and a formula for each size (package template) make a segment of any shape, which is replayed
// (package replay) through a simulation of PyTorch's caching allocator. README.md
// follows one storage through all of it.
package memory

import (
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
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
