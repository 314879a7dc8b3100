package memory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// fewShapes is how many different shapes prove the formulas when batch, length and labels all vary.
const fewShapes = 3

// span is the range of one figure over traced shapes.
type span struct{ least, most int64 }

func (s span) varies() bool { return s.least != s.most }

// traced sums up the shapes of a class.
type traced struct {
	shapes                []Shape
	batch, length, labels span
}

func (c *class) traced() traced {
	shapes, _ := c.shapes()
	if c.like != nil {
		more, _ := c.like.shapes()
		for _, s := range more {
			if !slices.Contains(shapes, s) {
				shapes = append(shapes, s)
			}
		}
	}
	over := func(of func(Shape) int64) span {
		s := span{of(shapes[0]), of(shapes[0])}
		for _, shape := range shapes[1:] {
			s = span{min(s.least, of(shape)), max(s.most, of(shape))}
		}
		return s
	}
	return traced{shapes, over(func(s Shape) int64 { return s.Batch }), over(func(s Shape) int64 { return s.Length }),
		over(func(s Shape) int64 { return s.Labels })}
}

// answers tells whether the class's forms hold for a shape. What never varied in the trace holds only where it was, and a
// batch of one takes other paths through broadcasting than larger ones.
func (c *class) answers(s Shape) bool {
	if !c.shaped() {
		return true
	}
	t := c.traced()
	if slices.Contains(t.shapes, s) {
		return true
	}
	if len(t.shapes) > 1 && c.isConstant() {
		return true
	}
	return len(t.shapes) >= t.needed() && t.batch.covers(s.Batch, 2) && t.length.covers(s.Length, 1) &&
		(t.labels == span{} || t.labels.covers(s.Labels, 0))
}

// needed is how many different shapes prove the formulas: one more than what varies, three at most.
func (t traced) needed() int {
	needed := 1
	for _, s := range []span{t.batch, t.length, t.labels} {
		if s.varies() {
			needed++
		}
	}
	return min(max(needed, 2), fewShapes)
}

// covers tells whether a value may be asked for: any from the smallest that behaves like the rest, if the trace varies it.
func (s span) covers(value, like int64) bool {
	if !s.varies() {
		return value == s.least
	}
	return value >= min(s.least, like)
}

func (c *class) isConstant() bool {
	return !slices.ContainsFunc(c.forms, func(f form) bool { return !f.isConstant() })
}

// cannotAnswer explains why none of some classes holds for a shape.
func cannotAnswer(kind string, classes []*class, s Shape) error {
	var shapes []Shape
	for _, c := range classes {
		for _, known := range c.traced().shapes {
			if !slices.Contains(shapes, known) {
				shapes = append(shapes, known)
			}
		}
	}
	if len(shapes) == 0 {
		hint := "record it too"
		if kind == KindAccumulate {
			hint = "trace with gradient accumulation, over two micro-batches or more"
		}
		return fault.New(fault.Unsupported, hint, "the trace has no segment of kind %q", kind)
	}
	words := make([]string, 0, len(shapes))
	for _, known := range shapes[:min(len(shapes), 8)] {
		words = append(words, fmt.Sprintf("(%d, %d, %d)", known.Batch, known.Length, known.Labels))
	}
	return fault.New(fault.Unsupported, fmt.Sprintf("trace the shape (%d, %d, %d) too, or further shapes like it", s.Batch, s.Length, s.Labels),
		"the trace does not tell what a %s segment needs at batch %d, length %d, labels %d; it has %s", kind, s.Batch, s.Length, s.Labels,
		strings.Join(words, ", "))
}
