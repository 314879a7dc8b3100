// Package memory answers from a recorded training step what the same step needs at another shape: it reads a trace (the
// births, sizes and deaths of storages), fits every size as an exact polynomial of batch and lengths, and replays the step
// through a simulation of PyTorch's caching allocator. docs/memory-model.md tells how, and has the file's format.
package memory

// FormatName and FormatVersion head every trace file. The version rises with every change that an older reader would
// misunderstand or refuse, new fields included.
const (
	FormatName    = "asrconfig-trace"
	FormatVersion = 1
)

// Kinds of segments.
const (
	KindLoad       = "load"       // the model moves to the device: once, first
	KindMicro      = "micro"      // forward and backward of a window's first micro-batch
	KindAccumulate = "accumulate" // the same of each further micro-batch before the optimizer's step
	KindStep       = "step"       // the optimizer's step that ends a window
	KindIteration  = "iteration"  // one whole step of a user's own loop
	KindEvaluate   = "evaluate"   // a forward pass without gradients
	KindGenerate   = "generate"   // one call that generates text
)

// Trace is one continuous recorded run. Storages are numbered from 0 in the order of their births over all segments.
type Trace struct {
	About    map[string]any `json:"about"`   // settings and versions: strings, numbers, booleans, null
	Ops      []string       `json:"ops"`     // names that Segment.Op points into
	Modules  []string       `json:"modules"` // names that Segment.Module points into; "" is outside any module
	Tags     []string       `json:"tags"`    // names that Segment.Tag points into; "" is no tag
	Lengths  []Rung         `json:"lengths"` // the ladder of lengths, the input's first
	Segments []Segment      `json:"segments"`
}

// Segment is a stretch of the run.
type Segment struct {
	Kind   string  `json:"kind"`
	Batch  *int64  `json:"batch,omitempty"`  // samples of the micro-batch; the three are absent where they do not apply
	Length *int64  `json:"length,omitempty"` // of the longest input, in the model's own units: samples or frames
	Labels *int64  `json:"labels,omitempty"` // of the longest transcript, in tokens; 0: none
	Events []int64 `json:"events"`           // n >= 0: a storage of n bytes is born (rows of a column_sum:<C>, elements of a length); n < 0: storage number -n-1 dies
	Op     []int32 `json:"op"`               // of each birth: what made it
	Module []int32 `json:"module"`           // of each birth: in which module
	Tag    []int32 `json:"tag"`              // of each birth: what for
	Phases []Phase `json:"phases"`           // where parts begin, the first at 0
}

// Phase is a part of a segment from an event on: "forward", "backward", "optimizer", …
type Phase struct {
	Event int
	Name  string
}

// Rung is one length of the ladder: floor((of + 2*padding - dilation*(kernel-1) - 1) / stride) + 1, as a convolution makes
// it of another. The first rung is the input's length and has a name only.
type Rung struct {
	Name     string `json:"name"`
	Of       *int   `json:"of,omitempty"` // the earlier rung it is made of
	Kernel   int64  `json:"kernel,omitempty"`
	Stride   int64  `json:"stride,omitempty"`
	Padding  int64  `json:"padding,omitempty"`
	Dilation int64  `json:"dilation,omitempty"`
}

// Shape is what a micro-batch is like.
type Shape struct {
	Batch  int64 `json:"batch"`
	Length int64 `json:"length"`
	Labels int64 `json:"labels"`
}

// Bounds of a shape: far beyond any training, and small enough that no arithmetic on them overflows.
const (
	maxBatch  = 1 << 16
	maxLength = 1 << 32
	maxLabels = 1 << 20
)

// shape is the segment's, with false when it has none.
func (s *Segment) shape() (Shape, bool) {
	if s.Batch == nil || s.Length == nil {
		return Shape{}, false
	}
	shape := Shape{Batch: *s.Batch, Length: *s.Length}
	if s.Labels != nil {
		shape.Labels = *s.Labels
	}
	return shape, true
}
