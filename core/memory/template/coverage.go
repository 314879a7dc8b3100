package template

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// fewShapes is how many different shapes prove the formulas when batch, length and labels all vary.
const fewShapes = 3

// span is the range of one figure over traced shapes.
type span struct{ low, high int64 }

func (s span) varies() bool { return s.low != s.high }

// coverage is what shapes a template was traced at.
type coverage struct {
	shapes                []trace.Shape
	batch, length, labels span
}

// coverage of the template, and of the later windows' whose formulas it took over.
func (t *Template) coverage() coverage {
	shapes, _ := t.Shapes()
	if t.first.later != nil {
		more, _ := t.first.later.Shapes()
		for _, s := range more {
			if !slices.Contains(shapes, s) {
				shapes = append(shapes, s)
			}
		}
	}
	over := func(dimension func(trace.Shape) int64) span {
		s := span{dimension(shapes[0]), dimension(shapes[0])}
		for _, shape := range shapes[1:] {
			s = span{min(s.low, dimension(shape)), max(s.high, dimension(shape))}
		}
		return s
	}
	return coverage{shapes, over(func(s trace.Shape) int64 {
		return s.Batch
	}), over(func(s trace.Shape) int64 { return s.Length }),
		over(func(s trace.Shape) int64 { return s.Labels })}
}

// Batches are the smallest and the largest batch that the template was traced at.
func (t *Template) Batches() [2]int {
	batch := t.coverage().batch
	return [2]int{int(batch.low), int(batch.high)}
}

// answers reports whether the template's formulas hold for a shape. What never varied in the trace
// holds only where it was, and a batch of one takes other paths through broadcasting than larger
// ones.
func (t *Template) answers(s trace.Shape) bool {
	if !t.HasShapes() {
		return true
	}
	c := t.coverage()
	if slices.Contains(c.shapes, s) {
		return true
	}
	if len(c.shapes) > 1 && t.isConstant() {
		return true
	}
	return len(c.shapes) >= c.needed() && c.batch.covers(s.Batch, 2) &&
		c.length.covers(s.Length, 1) &&
		(c.labels == span{} || c.labels.covers(s.Labels, 0))
}

// needed is how many different shapes prove the formulas: one more than what varies, three at most.
func (c coverage) needed() int {
	needed := 1
	for _, s := range []span{c.batch, c.length, c.labels} {
		if s.varies() {
			needed++
		}
	}
	return min(max(needed, 2), fewShapes)
}

// covers reports whether a value is supported: any from the smallest that behaves like the rest, if
// the trace varies it.
func (s span) covers(value, like int64) bool {
	if !s.varies() {
		return value == s.low
	}
	return value >= min(s.low, like)
}

func (t *Template) isConstant() bool {
	return !slices.ContainsFunc(t.Formulas, func(f formula.Formula) bool { return !f.IsConstant() })
}

// traced reports whether a recording has the shape, or one has none.
func (t *Template) traced(s trace.Shape) bool {
	return slices.ContainsFunc(t.Recordings, func(r Recording) bool {
		return !r.HasShape || r.Shape == s
	})
}

// cannotAnswer explains why none of some templates holds for a shape.
func cannotAnswer(kind string, templates []*Template, s trace.Shape) error {
	var shapes []trace.Shape
	for _, t := range templates {
		for _, covered := range t.coverage().shapes {
			if !slices.Contains(shapes, covered) {
				shapes = append(shapes, covered)
			}
		}
	}
	if len(shapes) == 0 {
		hint := "record it too"
		if kind == trace.KindAccumulate {
			hint = "trace with gradient accumulation, over two micro-batches or more"
		}
		return fault.New(fault.Unsupported, hint, "the trace has no segment of kind %q", kind)
	}
	words := make([]string, 0, len(shapes))
	for _, covered := range shapes[:min(len(shapes), 8)] {
		words = append(words, fmt.Sprintf("(%d, %d, %d)", covered.Batch, covered.Length,
			covered.Labels))
	}
	return fault.New(fault.Unsupported,
		fmt.Sprintf("trace the shape (%d, %d, %d) too, or further shapes like it", s.Batch,
			s.Length, s.Labels),
		"the trace does not determine what a %s segment needs at batch %d, length %d, labels %d; "+
			"it has %s", kind, s.Batch, s.Length, s.Labels,
		strings.Join(words, ", "))
}
