package memory

import (
	"iter"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// RunRequest is a question about a whole training: over samples in several orders, or over
// micro-batches that are known.
type RunRequest struct {
	// of every sample's input, 1 to 2^32, in the trace's units
	Lengths []int64 `json:"lengths"`
	// of every sample's transcript, 0 to 2^20; 0 each when absent
	Labels []int64 `json:"labels"`
	Batch  int     `json:"batch"` // samples of a micro-batch, 1 to 65536
	// micro-batches of an optimizer step, 1 to 65536; as traced when absent
	Accumulation *int `json:"accumulation"`
	Steps        int  `json:"steps"` // optimizer steps of each seed, 1 to 100 000
	Seeds        int  `json:"seeds"` // orders to try, 1 to 1000
	// "random" or "grouped", as the Trainer's group_by_length; "random"
	Order string `json:"order"`

	// Instead of all these: up to 100 000 optimizer steps, each of 1 to 65536 micro-batches of
	// batch, length and labels.
	Windows [][][3]int64 `json:"windows"`

	// what a micro-batch costs besides batch × length, in units of length; 0 or more
	Overhead float64 `json:"overhead"`
	Settings string  `json:"settings"` // text of PYTORCH_CUDA_ALLOC_CONF
	// what the allocator may reserve in all; no limit when absent
	LimitBytes  *uint64 `json:"limit_bytes"`
	DeviceBytes *uint64 `json:"device_bytes"` // what the process takes besides the allocator
	reduction.GPU
}

const (
	maxRunSteps  = 100_000
	maxSeeds     = 1000
	maxClips     = 10_000_000
	maxRunEvents = 1 << 31 // of all seeds: some minutes on two cores
)

// checkedRun makes of a request what is to be played.
func (m *Model) checkedRun(r RunRequest) (*run, error) {
	one := int64(1)
	check := Request{Batch: &one, Length: &one, Accumulation: r.Accumulation,
		LimitBytes: r.LimitBytes, DeviceBytes: r.DeviceBytes, GPU: r.GPU}
	if err := check.check(); err != nil {
		return nil, err
	}
	switch {
	case !(r.Overhead >= 0 && r.Overhead <= 1e15):
		return nil, outOfRange("overhead is %g; give 0 to 1e15", r.Overhead)
	case !m.templates.HasShapes():
		return nil, fault.New(fault.Unsupported,
			"name batch, length and labels in step() when you record",
			"the trace names no shapes, so it holds only for the recorded ones")
	case r.Windows != nil:
		return r.windows()
	}
	return r.sampled(profile.Or(r.Accumulation, m.templates.Accumulation()))
}

// windows is a run over the micro-batches of the request.
func (r RunRequest) windows() (*run, error) {
	if len(r.Windows) == 0 || len(r.Windows) > maxRunSteps {
		return nil, outOfRange("%d windows; the range is 1 to %d", len(r.Windows), maxRunSteps)
	}
	if len(r.Lengths) > 0 || len(r.Labels) > 0 || r.Batch != 0 || r.Accumulation != nil ||
		r.Steps != 0 || r.Seeds != 0 || r.Order != "" {
		return nil, outOfRange(
			"windows describe all steps: leave lengths, labels, batch, accumulation, steps, " +
				"seeds and order out")
	}
	wanted := &run{seeds: 1}
	windows := make([][]trace.Shape, len(r.Windows))
	for number, window := range r.Windows {
		if len(window) == 0 || len(window) > maxAccumulation {
			return nil, outOfRange("window %d has %d micro-batches; the range is 1 to %d", number,
				len(window), maxAccumulation)
		}
		for i, dims := range window {
			shape := trace.Shape{Batch: dims[0], Length: dims[1], Labels: dims[2]}
			if err := shape.Check(); err != nil {
				return nil, outOfRange("window %d, micro-batch %d: %s", number, i, err)
			}
			if wanted.largest == nil ||
				shape.Batch*shape.Length > wanted.largest[0].Batch*wanted.largest[0].Length {
				wanted.largest = []trace.Shape{shape}
			}
			windows[number] = append(windows[number], shape)
		}
		wanted.micros += len(window)
	}
	wanted.windows = func(uint64) iter.Seq2[int, []trace.Shape] { return slices.All(windows) }
	return wanted, nil
}

// sampled is a run over samples in several orders.
func (r RunRequest) sampled(accumulation int) (*run, error) {
	if err := r.checkSamples(); err != nil {
		return nil, err
	}
	c := &sampler{r.Lengths, r.Labels, r.Batch, r.Batch * accumulation, r.Order == "grouped"}
	if len(c.labels) == 0 {
		c.labels = make([]int64, len(c.lengths))
	}
	largest := trace.Shape{Batch: int64(r.Batch), Length: slices.Max(c.lengths),
		Labels: slices.Max(c.labels)}
	return &run{
		seeds: r.Seeds, largest: slices.Repeat([]trace.Shape{largest}, accumulation),
		micros: r.Steps * accumulation,
		windows: func(seed uint64) iter.Seq2[int, []trace.Shape] {
			return c.windows(seed, r.Steps, accumulation)
		},
	}, nil
}

func (r RunRequest) checkSamples() error {
	switch {
	case r.Batch < 1 || r.Batch > trace.MaxBatch:
		return outOfRange("batch is %d; the range is 1 to %d", r.Batch, trace.MaxBatch)
	case len(r.Lengths) < r.Batch || len(r.Lengths) > maxClips:
		return outOfRange("%d lengths; the range is %d, one batch, to %d", len(r.Lengths), r.Batch,
			maxClips)
	case len(r.Labels) > 0 && len(r.Labels) != len(r.Lengths):
		return outOfRange("%d labels for %d lengths", len(r.Labels), len(r.Lengths))
	case r.Steps < 1 || r.Steps > maxRunSteps:
		return outOfRange("steps is %d; the range is 1 to %d", r.Steps, maxRunSteps)
	case r.Seeds < 1 || r.Seeds > maxSeeds:
		return outOfRange("seeds is %d; the range is 1 to %d", r.Seeds, maxSeeds)
	case r.Order != "" && r.Order != "random" && r.Order != "grouped":
		return fault.New(fault.InvalidArgument, `give "random" or "grouped"`,
			"order %q is not known", fault.Shorten(r.Order))
	}
	for i, length := range r.Lengths {
		shape := trace.Shape{Batch: int64(r.Batch), Length: length}
		if len(r.Labels) > 0 {
			shape.Labels = r.Labels[i]
		}
		if err := shape.Check(); err != nil {
			return outOfRange("sample %d: %s", i, err)
		}
	}
	return nil
}
