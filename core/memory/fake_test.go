package memory

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeLoop writes down what a small model's training would, with sizes that are known in closed form. It takes the paths
// that make real traces hard: a batch of one broadcasts, the first window takes workspaces and makes the optimizer's
// state, inputs live until the next window, and the loss until the next micro-batch.
type fakeLoop struct {
	layers int64
	t      Trace
	births int64
	module int32 // of what is born next

	params, grads, states, inputs []int64
	loss                          int64
	warm                          bool
	shuffle                       bool // caches give up their entries in the other order now and then

	extra func(Shape) int64                                 // size of one more activation; none when nil
	sum   func(rows int64) int64                            // size of the buffer of each layer's column sum, in the trace's terms; none when nil
	mask  func(s Shape, shared int64) (source, saved int64) // makes a layer's mask, if it shares none; none when nil
}

const (
	none  = -1
	width = 64 // elements of the model's hidden state

	opLength = 6 // of newFakeLoop's names
	opPadOwn = 7
)

func newFakeLoop(layers int64) *fakeLoop {
	of := func(i int) *int { return &i }
	f := &fakeLoop{layers: layers, loss: none}
	f.t = Trace{
		About: map[string]any{"model": "Fake", "length_per_second": 100.0, "notes": ""},
		Ops:   []string{"to", "mm", "attention", "backward", "optimizer", "column_sum:1024", "length", "pad:8:2"}, Modules: []string{"", "encoder.layers.0.attention", "encoder.layers.1.attention", "encoder.layers.2.attention"},
		Tags: []string{"", "parameter", "gradient", "optimizer", "input", "workspace", "output"},
		Lengths: []Rung{{Name: "input"}, {Name: "length1", Of: of(0), Kernel: 5, Stride: 3, Dilation: 1},
			{Name: "length2", Of: of(1), Kernel: 3, Stride: 2, Padding: 1, Dilation: 1}},
	}
	f.segment(KindLoad, Shape{}, "load")
	for range layers {
		f.params = append(f.params, f.born(width*width*4, "parameter", 0))
	}
	return f
}

// frames is the encoder's length by hand: two convolutions.
func frames(n int64) int64 { return ((n-5)/3+1+2-3)/2 + 1 }

// lengthOf gives a length of so many frames.
func lengthOf(n int64) int64 { return 5 + 6*(n-1) }

func up(n, k int64) int64 { return (n + k - 1) / k * k }

func (f *fakeLoop) segment(kind string, s Shape, phase string) {
	segment := Segment{Kind: kind, Phases: []Phase{{0, phase}}, Events: []int64{}, Op: []int32{}, Module: []int32{}, Tag: []int32{}}
	if s != (Shape{}) {
		segment.Batch, segment.Length, segment.Labels = &s.Batch, &s.Length, &s.Labels
	}
	f.t.Segments = append(f.t.Segments, segment)
}

func (f *fakeLoop) here() *Segment { return &f.t.Segments[len(f.t.Segments)-1] }

func (f *fakeLoop) born(bytes int64, tag string, op int32) int64 {
	s := f.here()
	s.Events = append(s.Events, bytes)
	s.Op, s.Module = append(s.Op, op), append(s.Module, f.module)
	s.Tag = append(s.Tag, int32(slices.Index(f.t.Tags, tag)))
	f.births++
	return f.births - 1
}

func (f *fakeLoop) die(storages ...int64) {
	for _, id := range storages {
		if id != none {
			f.here().Events = append(f.here().Events, -id-1)
		}
	}
}

func (f *fakeLoop) phase(name string) {
	s := f.here()
	s.Phases = append(s.Phases, Phase{len(s.Events), name})
}

// micro is one micro-batch; first is the first of its window.
func (f *fakeLoop) micro(s Shape, first bool) {
	kind := KindMicro
	if !first {
		kind = KindAccumulate
	}
	f.segment(kind, s, "forward")
	input := f.born(s.Batch*s.Length*4, "input", 0)
	if first {
		f.die(f.inputs...)
		f.inputs = nil
	}
	f.inputs = append(f.inputs, input)
	if !f.warm {
		f.born(1<<20, "workspace", 1)
		f.warm = true
	}
	n := frames(s.Length)
	var saved, masks []int64
	shared := int64(none)
	if f.mask != nil {
		shared = f.ownMask(s, none)
	}
	for layer := range f.layers {
		f.module = int32(1 + layer%3)
		casts := []int64{f.born(width*width*2, "", 0), f.born(width*2, "", 0)}
		saved = append(saved, f.born(s.Batch*n*width*2, "", 1))
		if s.Batch > 1 {
			saved = append(saved, f.born(s.Batch*n*up(n, 8)*2, "", 2)) // a mask that is broadcast for one sample
		}
		saved = append(saved, f.born(s.Batch*4*up(n, 32)*4, "", 2))
		if f.mask != nil {
			masks = append(masks, f.masked(s, shared, layer))
		}
		if f.shuffle = !f.shuffle; f.shuffle {
			slices.Reverse(casts)
		}
		f.die(casts...)
	}
	f.module = 0
	f.unless(masks, shared)
	if f.extra != nil {
		saved = append(saved, f.born(f.extra(s), "", 1))
	}
	saved = append(saved, f.born(s.Batch*n*32*4, "", 1), f.born(s.Batch*n*(2*s.Labels+1)*4, "", 1))
	loss := f.born(4, "", 1)
	f.die(f.loss)
	f.loss = loss
	f.phase("backward")
	slices.Reverse(saved)
	for i, id := range saved {
		temporary := f.born(s.Batch*n*width*4+s.Batch*width*4, "", 3)
		if first && i < int(f.layers) {
			f.grads = append(f.grads, f.born(width*width*4, "gradient", 3))
		}
		f.die(id, temporary)
		if left := len(masks) - 1; left >= 0 {
			f.unless(masks[:left], masks[left])
			masks = masks[:left]
		}
		if f.sum != nil && i < int(f.layers) {
			f.die(f.born(f.sum(s.Batch*n), "workspace", 5))
		}
	}
}

// ownMask is the shared mask, or one that a layer makes for itself.
func (f *fakeLoop) ownMask(s Shape, shared int64) int64 {
	if shared != none {
		return shared
	}
	n := frames(s.Length)
	return f.born(s.Batch*n*n*2, "", 2)
}

// masked gives what a layer keeps of its mask for the backward pass: every second layer has one of its own, which ends
// with the layer unless it is kept.
func (f *fakeLoop) masked(s Shape, shared, layer int64) int64 {
	if layer%2 == 0 {
		shared = none
	}
	source, saved := f.mask(s, shared)
	if shared == none && source != saved {
		f.die(source)
	}
	return saved
}

// unless ends a mask that no layer of these keeps.
func (f *fakeLoop) unless(kept []int64, mask int64) {
	if !slices.Contains(kept, mask) {
		f.die(mask)
	}
}

// op is the number of an operation's name.
func (f *fakeLoop) op(name string) int32 {
	at := slices.Index(f.t.Ops, name)
	if at < 0 {
		at = len(f.t.Ops)
		f.t.Ops = append(f.t.Ops, name)
	}
	return int32(at)
}

func (f *fakeLoop) step(s Shape) {
	f.segment(KindStep, s, "optimizer")
	norm := f.born(4*f.layers, "", 4)
	if f.states == nil {
		for range 2 * f.layers {
			f.states = append(f.states, f.born(width*width*4, "optimizer", 4))
		}
	}
	update := f.born(width*width*4, "", 4)
	f.die(norm, update)
	f.die(f.grads...)
	f.grads = nil
}

func (f *fakeLoop) window(s Shape, accumulation int) {
	for i := range accumulation {
		f.micro(s, i == 0)
	}
	f.step(s)
}

func (f *fakeLoop) evaluate(s Shape) {
	f.segment(KindEvaluate, s, "evaluation")
	input := f.born(s.Batch*s.Length*4, "input", 0)
	n := frames(s.Length)
	hidden := int64(none)
	for range f.layers {
		next := f.born(s.Batch*n*width*2, "", 1)
		f.die(hidden)
		hidden = next
	}
	logits := f.born(s.Batch*n*32*4, "output", 1)
	f.die(hidden, input, logits)
}

// usual is the run that the recorder makes: the first window twice, then a window per further shape.
var usual = []Shape{{2, 1231, 11}, {2, 1231, 11}, {3, 1943, 17}, {5, 2791, 7}, {4, 1667, 23}, {1, 1231, 13}, {1, 2791, 19}, {1, 1943, 5}}

func usualTrace(accumulation int) *fakeLoop {
	f := newFakeLoop(3)
	f.run(usual, accumulation)
	return f
}

func (f *fakeLoop) run(shapes []Shape, accumulation int) {
	for _, s := range shapes {
		f.window(s, accumulation)
	}
	f.die(f.inputs...)
	f.inputs = nil
	for _, s := range shapes[1:] {
		f.evaluate(s)
	}
}

// opened sends a trace through its file format, as the real ones come.
func (f *fakeLoop) opened(t *testing.T) *Model {
	t.Helper()
	data, err := f.t.Encode()
	require.NoError(t, err)
	read, err := Decode(data)
	require.NoError(t, err)
	m, err := New(read)
	require.NoError(t, err)
	return m
}
