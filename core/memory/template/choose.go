package template

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// For returns the template of a segment at a position of a run. A first window whose shapes were
// not traced is composed of a later one and of what the traced first window left for good.
func (s *Set) For(p Position, shape trace.Shape) (*Template, error) {
	later, err := s.later(p, shape)
	if err != nil || p.Window != 0 || !p.Role.trains() {
		return later, err
	}
	firsts := s.templatesAt(p, true)
	for _, t := range firsts {
		if t == later || t.first.later == later && !t.first.unrelated || t.traced(shape) {
			return t, nil
		}
	}
	if len(firsts) == 0 || firsts[0].first.later == nil {
		return later, nil
	}
	key := [2]*Template{firsts[0], later}
	if cached, ok := s.composed.Load(key); ok {
		return cached.(*Template), nil
	}
	made, _ := s.composed.LoadOrStore(key, compose(firsts[0], later))
	return made.(*Template), nil
}

// Has reports whether segments at such a position were traced.
func (s *Set) Has(p Position) bool {
	return len(s.templatesAt(p, true)) > 0 || len(s.templatesAt(p, false)) > 0
}

// later returns the template of a segment in any window but the first. A trace of one window has
// only that.
func (s *Set) later(p Position, shape trace.Shape) (*Template, error) {
	candidates := s.templatesAt(p, false)
	if len(candidates) == 0 {
		candidates = s.templatesAt(p, true)
	}
	if len(candidates) == 0 && p.kindOrder() == 2 {
		p.Order = 1
		return s.later(p, shape)
	}
	var best *Template
	for _, t := range candidates {
		if t.answers(shape) && (best == nil || t.suits(shape) > best.suits(shape)) {
			best = t
		}
	}
	if best == nil {
		return nil, cannotAnswer(p.Role.Kind(), candidates, shape)
	}
	return best, nil
}

// templatesAt lists the templates of the trace's segments at such a position, in the first window
// or in later ones.
func (s *Set) templatesAt(p Position, first bool) []*Template {
	var templates []*Template
	for i, q := range s.Positions {
		if q.Role.Kind() == p.Role.Kind() && q.kindOrder() == p.kindOrder() &&
			(q.Window == 0) == first && !slices.Contains(templates, s.Of[i]) {
			templates = append(templates, s.Of[i])
		}
	}
	return templates
}

// kindOrder is the same for positions that share templates: every accumulated micro-batch from the
// second on.
func (p Position) kindOrder() int {
	if p.Role.Kind() == trace.KindAccumulate {
		return min(p.Order, 2)
	}
	return 0
}

// suits orders templates that answer for a shape: one that was traced at it, else the one with more
// shapes.
func (t *Template) suits(s trace.Shape) int {
	if t.traced(s) {
		return math.MaxInt
	}
	shapes, _ := shapesOf(t.Recordings)
	return len(shapes)
}

// Accumulation is how many micro-batches a traced window has.
func (s *Set) Accumulation() int {
	n := 1
	for _, p := range s.Positions {
		if p.Role.Kind() == trace.KindAccumulate {
			n = max(n, p.Order+1)
		}
	}
	return n
}

// HasShapes reports whether training, or what else there is, was traced with its shapes.
func (s *Set) HasShapes() bool {
	for i, p := range s.Positions {
		if p.Role == Iteration && !s.Of[i].HasShapes() {
			return false
		}
	}
	return true
}

// fewShapes is how many different shapes prove the formulas when batch, length and labels all vary.
const fewShapes = 3

// span is the range of one figure over traced shapes.
type span struct{ low, high int64 }

func (s span) varies() bool { return s.low != s.high }

// covered are the shapes that the template was traced at, and those of the later windows' whose
// formulas it took over.
func (t *Template) covered() []trace.Shape {
	recordings := t.Recordings
	if t.first.later != nil {
		recordings = slices.Concat(recordings, t.first.later.Recordings)
	}
	shapes, _ := shapesOf(recordings)
	return shapes
}

// answers reports whether the template's formulas hold for a shape. What never varied in the trace
// holds only where it was, and a batch of one takes other paths through broadcasting than larger
// ones.
func (t *Template) answers(s trace.Shape) bool {
	if !t.HasShapes() {
		return true
	}
	shapes := t.covered()
	if slices.Contains(shapes, s) || len(shapes) > 1 && t.isConstant() {
		return true
	}
	low, high := trace.Bounds(shapes)
	batch, length := span{low.Batch, high.Batch}, span{low.Length, high.Length}
	labels := span{low.Labels, high.Labels}
	return len(shapes) >= needed(batch, length, labels) && batch.covers(s.Batch, 2) &&
		length.covers(s.Length, 1) && (labels == span{} || labels.covers(s.Labels, 0))
}

// needed is how many different shapes prove the formulas: one more than what varies, three at most.
func needed(figures ...span) int {
	shapes := 1
	for _, s := range figures {
		if s.varies() {
			shapes++
		}
	}
	return min(max(shapes, 2), fewShapes)
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
		for _, covered := range t.covered() {
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
