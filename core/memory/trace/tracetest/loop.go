// Package tracetest writes traces of a small model's training, for tests.
package tracetest

import (
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Loop writes down what a small model's training would, with sizes that are known in closed form.
// It takes the paths that make real traces hard: a batch of one broadcasts, the first window takes
// workspaces and makes the optimizer's state, inputs live until the next window, and the loss until
// the next micro-batch.
type Loop struct {
	Layers   int64
	Trace    trace.Trace
	Storages int64 // so far
	module   int32 // of what is allocated next

	Params, Grads, States, Inputs []int64
	loss                          int64
	warm                          bool
	// caches give up their entries in the other order occasionally
	shuffle bool

	// size of one more activation; none when nil
	Extra func(trace.Shape) int64
	// size of the buffer of each layer's column sum, in the trace's terms; none when nil
	Sum func(rows int64) int64
	// makes a layer's mask, if it shares None; no masks when nil
	Mask func(s trace.Shape, shared int64) (source, saved int64)
}

// None is no storage.
const None = -1

// What the model is made of.
const (
	Width = 64 // elements of the model's hidden state

	OpLength = 6 // of New's names
	OpPad    = 7
)

// New is a loop whose model is loaded.
func New(layers int64) *Loop {
	from := func(i int) *int { return &i }
	f := &Loop{Layers: layers, loss: None}
	f.Trace = trace.Trace{
		About: map[string]any{"model": "Fake", "length_per_second": 100.0, "notes": ""},
		Ops: []string{"to", "mm", "attention", "backward", "optimizer", "column_sum:1024",
			"length", "pad:8:2"}, Modules: []string{"", "encoder.layers.0.attention",
			"encoder.layers.1.attention", "encoder.layers.2.attention"},
		Tags: []string{"", "parameter", "gradient", "optimizer", "input", "workspace", "output"},
		Lengths: []trace.Length{{Name: "input"},
			{Name: "length1", Of: from(0), Kernel: 5, Stride: 3, Dilation: 1},
			{Name: "length2", Of: from(1), Kernel: 3, Stride: 2, Padding: 1, Dilation: 1}},
	}
	f.Segment(trace.KindLoad, trace.Shape{}, "load")
	for range layers {
		f.Params = append(f.Params, f.Alloc(Width*Width*4, "parameter", 0))
	}
	return f
}

// Frames is the encoder's length by hand: two convolutions.
func Frames(n int64) int64 { return ((n-5)/3+1+2-3)/2 + 1 }

// LengthOf returns a length of so many frames.
func LengthOf(n int64) int64 { return 5 + 6*(n-1) }

// RoundUp returns the next multiple of k.
func RoundUp(n, k int64) int64 { return (n + k - 1) / k * k }

// Segment begins a segment.
func (f *Loop) Segment(kind string, s trace.Shape, phase string) {
	segment := trace.Segment{Kind: kind, Phases: []trace.Phase{{Name: phase}}, Events: []int64{},
		Op: []int32{}, Module: []int32{}, Tag: []int32{}}
	if s != (trace.Shape{}) {
		segment.Batch, segment.Length, segment.Labels = &s.Batch, &s.Length, &s.Labels
	}
	f.Trace.Segments = append(f.Trace.Segments, segment)
}

// Last is the segment that is being written.
func (f *Loop) Last() *trace.Segment { return &f.Trace.Segments[len(f.Trace.Segments)-1] }

// Alloc writes an allocation and returns the storage's number.
func (f *Loop) Alloc(bytes int64, tag string, op int32) int64 {
	s := f.Last()
	s.Events = append(s.Events, bytes)
	s.Op, s.Module = append(s.Op, op), append(s.Module, f.module)
	s.Tag = append(s.Tag, int32(slices.Index(f.Trace.Tags, tag)))
	f.Storages++
	return f.Storages - 1
}

// Free writes that storages are freed.
func (f *Loop) Free(storages ...int64) {
	for _, id := range storages {
		if id != None {
			f.Last().Events = append(f.Last().Events, -id-1)
		}
	}
}

// Phase begins a phase of the segment.
func (f *Loop) Phase(name string) {
	s := f.Last()
	s.Phases = append(s.Phases, trace.Phase{Event: len(s.Events), Name: name})
}

// Micro is one micro-batch; first is the first of its window.
func (f *Loop) Micro(s trace.Shape, first bool) {
	kind := trace.KindMicro
	if !first {
		kind = trace.KindAccumulate
	}
	f.Segment(kind, s, "forward")
	input := f.Alloc(s.Batch*s.Length*4, "input", 0)
	if first {
		f.Free(f.Inputs...)
		f.Inputs = nil
	}
	f.Inputs = append(f.Inputs, input)
	if !f.warm {
		f.Alloc(1<<20, "workspace", 1)
		f.warm = true
	}
	n := Frames(s.Length)
	var saved, masks []int64
	shared := int64(None)
	if f.Mask != nil {
		shared = f.OwnMask(s, None)
	}
	for layer := range f.Layers {
		f.module = int32(1 + layer%3)
		casts := []int64{f.Alloc(Width*Width*2, "", 0), f.Alloc(Width*2, "", 0)}
		saved = append(saved, f.Alloc(s.Batch*n*Width*2, "", 1))
		if s.Batch > 1 {
			// a mask that is broadcast for one sample
			saved = append(saved, f.Alloc(s.Batch*n*RoundUp(n, 8)*2, "", 2))
		}
		saved = append(saved, f.Alloc(s.Batch*4*RoundUp(n, 32)*4, "", 2))
		if f.Mask != nil {
			masks = append(masks, f.masked(s, shared, layer))
		}
		if f.shuffle = !f.shuffle; f.shuffle {
			slices.Reverse(casts)
		}
		f.Free(casts...)
	}
	f.module = 0
	f.freeUnlessKept(masks, shared)
	if f.Extra != nil {
		saved = append(saved, f.Alloc(f.Extra(s), "", 1))
	}
	saved = append(saved, f.Alloc(s.Batch*n*32*4, "", 1),
		f.Alloc(s.Batch*n*(2*s.Labels+1)*4, "", 1))
	loss := f.Alloc(4, "", 1)
	f.Free(f.loss)
	f.loss = loss
	f.Phase("backward")
	slices.Reverse(saved)
	for i, id := range saved {
		temporary := f.Alloc(s.Batch*n*Width*4+s.Batch*Width*4, "", 3)
		if first && i < int(f.Layers) {
			f.Grads = append(f.Grads, f.Alloc(Width*Width*4, "gradient", 3))
		}
		f.Free(id, temporary)
		if last := len(masks) - 1; last >= 0 {
			f.freeUnlessKept(masks[:last], masks[last])
			masks = masks[:last]
		}
		if f.Sum != nil && i < int(f.Layers) {
			f.Free(f.Alloc(f.Sum(s.Batch*n), "workspace", 5))
		}
	}
}

// OwnMask is the shared mask, or one that a layer makes for itself.
func (f *Loop) OwnMask(s trace.Shape, shared int64) int64 {
	if shared != None {
		return shared
	}
	n := Frames(s.Length)
	return f.Alloc(s.Batch*n*n*2, "", 2)
}

// masked returns what a layer keeps of its mask for the backward pass: every second layer has one
// of its own, which ends with the layer unless it is kept.
func (f *Loop) masked(s trace.Shape, shared, layer int64) int64 {
	if layer%2 == 0 {
		shared = None
	}
	source, saved := f.Mask(s, shared)
	if shared == None && source != saved {
		f.Free(source)
	}
	return saved
}

// freeUnlessKept ends a mask that no layer of these keeps.
func (f *Loop) freeUnlessKept(masks []int64, mask int64) {
	if !slices.Contains(masks, mask) {
		f.Free(mask)
	}
}

// OpNumber is the number of an operation's name.
func (f *Loop) OpNumber(name string) int32 {
	i := slices.Index(f.Trace.Ops, name)
	if i < 0 {
		i = len(f.Trace.Ops)
		f.Trace.Ops = append(f.Trace.Ops, name)
	}
	return int32(i)
}

// Step is the optimizer's.
func (f *Loop) Step(s trace.Shape) {
	f.Segment(trace.KindStep, s, "optimizer")
	norm := f.Alloc(4*f.Layers, "", 4)
	if f.States == nil {
		for range 2 * f.Layers {
			f.States = append(f.States, f.Alloc(Width*Width*4, "optimizer", 4))
		}
	}
	update := f.Alloc(Width*Width*4, "", 4)
	f.Free(norm, update)
	f.Free(f.Grads...)
	f.Grads = nil
}

// Window is one optimizer step of equal micro-batches.
func (f *Loop) Window(s trace.Shape, accumulation int) {
	for i := range accumulation {
		f.Micro(s, i == 0)
	}
	f.Step(s)
}

// Evaluate is one batch of an evaluation.
func (f *Loop) Evaluate(s trace.Shape) {
	f.Segment(trace.KindEvaluate, s, "evaluation")
	input := f.Alloc(s.Batch*s.Length*4, "input", 0)
	n := Frames(s.Length)
	hidden := int64(None)
	for range f.Layers {
		next := f.Alloc(s.Batch*n*Width*2, "", 1)
		f.Free(hidden)
		hidden = next
	}
	logits := f.Alloc(s.Batch*n*32*4, "output", 1)
	f.Free(hidden, input, logits)
}

// Shapes is the run that the recorder makes: the first window twice, then a window per further
// shape.
var Shapes = ShapesOf(shapeNumbers{2, 1231, 11}, shapeNumbers{2, 1231, 11},
	shapeNumbers{3, 1943, 17}, shapeNumbers{5, 2791, 7}, shapeNumbers{4, 1667, 23},
	shapeNumbers{1, 1231, 13}, shapeNumbers{1, 2791, 19}, shapeNumbers{1, 1943, 5})

// Usual is the run that the recorder makes.
func Usual(accumulation int) *Loop {
	f := New(3)
	f.Run(Shapes, accumulation)
	return f
}

// Run writes a window for each shape, then evaluations.
func (f *Loop) Run(shapes []trace.Shape, accumulation int) {
	for _, s := range shapes {
		f.Window(s, accumulation)
	}
	f.Free(f.Inputs...)
	f.Inputs = nil
	for _, s := range shapes[1:] {
		f.Evaluate(s)
	}
}

type shapeNumbers = [3]int64

// ShapesOf makes shapes of batch, length and labels.
func ShapesOf(numbers ...[3]int64) []trace.Shape {
	shapes := make([]trace.Shape, len(numbers))
	for i, n := range numbers {
		shapes[i] = ShapeOf(n[0], n[1], n[2])
	}
	return shapes
}

// ShapeOf makes one.
func ShapeOf(batch, length, labels int64) trace.Shape {
	return trace.Shape{Batch: batch, Length: length, Labels: labels}
}
