package api

import (
	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory"
	"github.com/asrconfig/asrconfig-go/core/memory/peak"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

var traces registry[*memory.Model]

type openTraceArgs struct {
	Path  string `json:"path"`  // of a trace file, or
	Trace []byte `json:"trace"` // its content, base64 in JSON
}

type openedTrace struct {
	Trace uint64 `json:"trace"`
	memory.Summary
}

// openTrace reads a trace and keeps it for memory.simulate, memory.snapshot and memory.run until
// memory.close. Errors: Corrupt, NotFound.
func openTrace(a openTraceArgs) (openedTrace, error) {
	m, err := a.model()
	if err != nil {
		return openedTrace{}, err
	}
	return openedTrace{traces.add(m), m.Summary()}, nil
}

func (a openTraceArgs) model() (*memory.Model, error) {
	if (a.Path == "") == (len(a.Trace) == 0) {
		return nil, fault.New(fault.InvalidArgument,
			"pass the path of a trace file, or its content", "one of path and trace is required")
	}
	var t *trace.Trace
	var err error
	if a.Path != "" {
		t, err = trace.ReadFile(a.Path)
	} else {
		t, err = trace.Decode(a.Trace)
	}
	if err != nil {
		return nil, err
	}
	return memory.New(t)
}

// ofTrace is what operations on a trace have among their arguments.
type ofTrace struct {
	Trace traceRef `json:"trace"`
}

func (a ofTrace) found() (*memory.Model, error) { return a.Trace.model() }

// traceRef is an opened trace, by its handle, or the content of a trace file for a single question.
type traceRef struct {
	handle  uint64
	content []byte
}

func (r *traceRef) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &r.content)
	}
	return json.Unmarshal(raw, &r.handle)
}

func (r traceRef) model() (*memory.Model, error) {
	if len(r.content) > 0 {
		return openTraceArgs{Trace: r.content}.model()
	}
	return traces.get(r.handle, "trace")
}

type simulateArgs struct {
	ofTrace
	memory.Request
}

// simulate replays one step, or one evaluation batch, of a trace at other shapes through the
// allocator.
func simulate(m *memory.Model, a simulateArgs) (peak.Estimate, error) {
	return m.Simulate(a.Request)
}

// determines reports whether a trace answers memory.simulate for a shape by formulas that are exact
// there; else the shape is to be traced itself.
func determines(m *memory.Model, a simulateArgs) (memory.Determined, error) {
	return m.Determined(a.Request)
}

type largestArgs struct {
	ofTrace
	memory.LargestRequest
}

// largest searches the largest micro-batch that fits for each of some lengths, and names the shapes
// that are to be traced for it.
func largest(m *memory.Model, a largestArgs) (memory.Largest, error) {
	return m.Largest(a.LargestRequest, func(handle uint64) (*memory.Model, error) {
		return traces.get(handle, "trace")
	})
}

type snapshotArgs struct {
	ofTrace
	memory.SnapshotRequest
}

// snapshotOf replays what memory.simulate does, and gives the allocator's events and its blocks at
// the end.
func snapshotOf(m *memory.Model, a snapshotArgs) (memory.Snapshot, error) {
	return m.Snapshot(a.SnapshotRequest)
}

type heldArgs struct {
	Trace *traceRef `json:"trace"` // null or absent: nothing is predicted
	memory.CompareRequest
}

// compareHeld holds what a training held at a moment, such as that in which its memory ran out,
// against the same moment of a trace's run; without a trace it sums up what was held.
func compareHeld(a heldArgs) (memory.Comparison, error) {
	if a.Trace == nil {
		return a.Unpredicted()
	}
	m, err := a.Trace.model()
	if err != nil {
		return memory.Comparison{}, err
	}
	return m.Compare(a.CompareRequest)
}

type runArgs struct {
	ofTrace
	memory.RunRequest
}

// runTraining replays many steps of a trace, one after the other, as a training does.
func runTraining(m *memory.Model, a runArgs) (memory.RunEstimate, error) {
	return m.Run(a.RunRequest)
}

type workArgs struct {
	ofTrace
	trace.Shape
}

// workOf lists what the kernels of one micro-batch of a shape do, by a trace.
func workOf(m *memory.Model, a workArgs) (memory.StepWork, error) {
	return m.Work(a.Shape)
}

type traceArgs struct {
	Trace uint64 `json:"trace"`
}

func (a traceArgs) found() (*memory.Model, error) { return traces.get(a.Trace, "trace") }

// closeTrace forgets a trace.
func closeTrace(_ *memory.Model, a traceArgs) (struct{}, error) {
	traces.remove(a.Trace)
	return struct{}{}, nil
}
