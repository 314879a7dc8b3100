package template

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// For gives the template of a segment at a position of a run. A first window whose shapes were not traced is composed of a
// later one and of what the traced first window left for good.
func (s *Set) For(p Position, shape trace.Shape) (*Template, error) {
	later, err := s.later(p, shape)
	if err != nil || p.Window != 0 || !p.Role.trains() {
		return later, err
	}
	firsts := s.at(p, true)
	for _, t := range firsts {
		if t == later || t.first.later == later && !t.first.unrelated || t.traced(shape) {
			return t, nil
		}
	}
	if len(firsts) == 0 || firsts[0].first.later == nil {
		return later, nil
	}
	key := [2]*Template{firsts[0], later}
	if known, ok := s.composed.Load(key); ok {
		return known.(*Template), nil
	}
	made, _ := s.composed.LoadOrStore(key, compose(firsts[0], later))
	return made.(*Template), nil
}

// Has tells whether segments at such a position were traced.
func (s *Set) Has(p Position) bool { return len(s.at(p, true)) > 0 || len(s.at(p, false)) > 0 }

// later gives the template of a segment in any window but the first. A trace of one window has only that.
func (s *Set) later(p Position, shape trace.Shape) (*Template, error) {
	known := s.at(p, false)
	if len(known) == 0 {
		known = s.at(p, true)
	}
	if len(known) == 0 && p.kindOrder() == 2 {
		p.Order = 1
		return s.later(p, shape)
	}
	var best *Template
	for _, t := range known {
		if t.answers(shape) && (best == nil || t.suits(shape) > best.suits(shape)) {
			best = t
		}
	}
	if best == nil {
		return nil, cannotAnswer(p.Role.Kind(), known, shape)
	}
	return best, nil
}

// at lists the templates of the trace's segments at such a position, in the first window or in later ones.
func (s *Set) at(p Position, first bool) []*Template {
	var found []*Template
	for i, q := range s.Positions {
		if q.Role.Kind() == p.Role.Kind() && q.kindOrder() == p.kindOrder() && (q.Window == 0) == first && !slices.Contains(found, s.Of[i]) {
			found = append(found, s.Of[i])
		}
	}
	return found
}

// kindOrder is the same for positions that share templates: every accumulated micro-batch from the second on.
func (p Position) kindOrder() int {
	if p.Role.Kind() == trace.KindAccumulate {
		return min(p.Order, 2)
	}
	return 0
}

// suits orders templates that answer for a shape: one that was traced at it, else the one with more shapes.
func (t *Template) suits(s trace.Shape) int {
	if t.traced(s) {
		return math.MaxInt
	}
	shapes, _ := t.Shapes()
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

// HasShapes tells whether training, or what else there is, was traced with its shapes.
func (s *Set) HasShapes() bool {
	for i, p := range s.Positions {
		if p.Role == Iteration && !s.Of[i].HasShapes() {
			return false
		}
	}
	return true
}
