// Package trace reads recorded training steps: which storages were allocated and freed, in what
// order, by which operation of which module. README.md has the file's format.
package trace

import (
	"fmt"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// FormatName and FormatVersion head every trace file. The version rises with every change that an
// older reader would misunderstand or refuse, new fields included.
const (
	FormatName    = "asrconfig-trace"
	FormatVersion = 2
)

// Kinds of segments.
const (
	KindLoad  = "load"  // the model moves to the device: once, first
	KindMicro = "micro" // forward and backward of a window's first micro-batch
	// the same of each further micro-batch before the optimizer's step
	KindAccumulate = "accumulate"
	KindStep       = "step"      // the optimizer's step that ends a window
	KindIteration  = "iteration" // one whole step of a user's own loop
	KindEvaluate   = "evaluate"  // a forward pass without gradients
	KindGenerate   = "generate"  // one call that generates text
)

// PhaseLoadAgain is the end of a loading segment: the model moves to the device where it is, after
// the cache was emptied, as accelerate's prepare_model does in transformers.Trainer.train.
const PhaseLoadAgain = "load_again"

// Trace is one continuous recorded run. Storages are numbered from 0 in the order of their
// allocation over all segments.
type Trace struct {
	// settings and versions: strings, numbers, booleans, null
	About map[string]any `json:"about"`
	Ops   []string       `json:"ops"` // names that Segment.Op points into; see ParseOp
	// names that Segment.Module points into; "" is outside any module
	Modules []string `json:"modules"`
	Tags    []string `json:"tags"` // names that Segment.Tag points into; "" is no tag
	// the input's, and what each convolution over time makes of it
	Lengths  []Length  `json:"lengths"`
	Calls    []Call    `json:"calls"` // that Segment.Calls points into
	Segments []Segment `json:"segments"`
}

// Segment is a part of the run: loading, a micro-batch, an optimizer's step.
type Segment struct {
	Kind string `json:"kind"`
	// samples of the micro-batch; the three are absent where they do not apply
	Batch *int64 `json:"batch,omitempty"`
	// of the longest input, in the model's own units: samples or frames
	Length *int64 `json:"length,omitempty"`
	Labels *int64 `json:"labels,omitempty"` // of the longest transcript, in tokens; 0: none
	// n >= 0: a storage of n bytes (of n units of its Op) is allocated; n < 0: storage number -n-1
	// is freed
	Events []int64 `json:"events"`
	Op     []int32 `json:"op"`     // of each allocation: what made it
	Module []int32 `json:"module"` // of each allocation: in which module
	Tag    []int32 `json:"tag"`    // of each allocation: what for
	Phases []Phase `json:"phases"` // where they begin, the first at 0

	// operations of forward and backward pass, in their order
	Calls   []int32 `json:"calls,omitempty"`
	Numbers []int64 `json:"numbers,omitempty"` // of one call after the other, as many as each has
}

// Phase is a part of a segment from an event on: "forward", "backward", "optimizer", …
type Phase struct {
	Event int
	Name  string
}

// Length is floor((of + 2*padding - dilation*(kernel-1) - 1) / stride) + 1, as a convolution makes
// it of another length. The first is the input's and has a name only.
type Length struct {
	Name     string `json:"name"`
	Of       *int   `json:"of,omitempty"` // the earlier length it is made of
	Kernel   int64  `json:"kernel,omitempty"`
	Stride   int64  `json:"stride,omitempty"`
	Padding  int64  `json:"padding,omitempty"`
	Dilation int64  `json:"dilation,omitempty"`
}

// TooLarge is a size that no machine has, returned where arithmetic would overflow. The allocator
// refuses it.
const TooLarge = 1 << 60

// Shape is what the sizes of a micro-batch depend on.
type Shape struct {
	Batch  int64 `json:"batch"`
	Length int64 `json:"length"`
	Labels int64 `json:"labels"`
}

// Bounds of a shape: far beyond any training, and small enough that no arithmetic on them
// overflows.
const (
	MaxBatch  = 1 << 16
	MaxLength = 1 << 32
	MaxLabels = 1 << 20
)

// Check finds a shape out of range.
func (s Shape) Check() error {
	switch {
	case s.Batch < 1 || s.Batch > MaxBatch:
		return fmt.Errorf("batch is %d; the range is 1 to %d", s.Batch, MaxBatch)
	case s.Length < 1 || s.Length > MaxLength:
		return fmt.Errorf("length is %d; the range is 1 to %d", s.Length, int64(MaxLength))
	case s.Labels < 0 || s.Labels > MaxLabels:
		return fmt.Errorf("labels is %d; the range is 0 to %d", s.Labels, MaxLabels)
	}
	return nil
}

// Bounds are the smallest and the largest figures of shapes, of which there is one at least.
func Bounds(shapes []Shape) (low, high Shape) {
	low, high = shapes[0], shapes[0]
	for _, s := range shapes[1:] {
		low = Shape{min(low.Batch, s.Batch), min(low.Length, s.Length), min(low.Labels, s.Labels)}
		high = Shape{max(high.Batch, s.Batch), max(high.Length, s.Length),
			max(high.Labels, s.Labels)}
	}
	return low, high
}

// Shape is the segment's, with false when it has none.
func (s *Segment) Shape() (Shape, bool) {
	if s.Batch == nil || s.Length == nil {
		return Shape{}, false
	}
	return Shape{*s.Batch, *s.Length, profile.Or(s.Labels, 0)}, true
}

// MarshalJSON writes a phase as [event, name].
func (p Phase) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.Event, p.Name}) }

// UnmarshalJSON reads [event, name].
func (p *Phase) UnmarshalJSON(raw []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("a phase is [event, name], not %s", fault.Shorten(string(raw)))
	}
	if err := json.Unmarshal(parts[0], &p.Event); err != nil {
		return err
	}
	return json.Unmarshal(parts[1], &p.Name)
}
