package template

import (
	"math"
	"slices"

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

// HasShapes reports whether training, or what else there is, was traced with its shapes.
func (s *Set) HasShapes() bool {
	for i, p := range s.Positions {
		if p.Role == Iteration && !s.Of[i].HasShapes() {
			return false
		}
	}
	return true
}
