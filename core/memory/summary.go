package memory

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/template"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Summary is what a trace holds and how well its sizes are understood.
type Summary struct {
	About    map[string]any `json:"about"`
	Storages int            `json:"storages"` // in the trace
	// of those, with a formula that gives every traced size
	Exact       int `json:"exact"`
	Approximate int `json:"approximate"` // the others
	// of the exact ones, those with more than one formula as simple
	Ambiguous int `json:"ambiguous"`
	// largest relative error at a traced shape, 0 to 1
	WorstResidual float64 `json:"worst_residual"`
	// a layer normalizes over time, so that results depend on how much a clip is padded
	OverTime bool `json:"over_time"`
	// the traced segments that have a shape, in order
	Points    []Point    `json:"points"`
	Templates []Template `json:"templates"`
}

// Point is the shape of a traced segment.
type Point struct {
	Kind string `json:"kind"`
	trace.Shape
}

// Template is the structure that traced segments share.
type Template struct {
	Kind        string  `json:"kind"`
	Segments    []int   `json:"segments"` // of the trace
	Storages    int     `json:"storages"` // in each
	Events      int     `json:"events"`   // in each, frees of earlier segments' storages aside
	Shapes      int     `json:"shapes"`   // different ones
	Batch       [2]int  `json:"batch"`    // smallest and largest traced
	Exact       int     `json:"exact"`
	Approximate int     `json:"approximate"`
	Doubtful    []Doubt `json:"doubtful"` // the largest sizes without an exact or a single formula
}

// Doubt is a size whose formula is inexact, or one of several.
type Doubt struct {
	Op     string `json:"op"`
	Module string `json:"module"`
	// in bytes, or in rows of a column sum; B is the batch, up8(n) is n rounded up to a multiple of
	// 8
	Formula  string  `json:"formula"`
	Residual float64 `json:"residual"`
	Bytes    int64   `json:"bytes"` // largest traced; of a column sum, on the usual GPU
}

const mostDoubts = 8 // listed of one template

// Summary sums the trace up.
func (m *Model) Summary() Summary {
	s := Summary{About: m.about, Points: []Point{}, Templates: []Template{},
		OverTime: slices.ContainsFunc(m.ops, normalizesOverTime)}
	for _, t := range m.templates.Templates {
		n, recordings := t.Exactness(), len(t.Recordings)
		s.Storages += len(t.Storages) * recordings
		s.Exact += n.Exact * recordings
		s.Approximate += n.Inexact * recordings
		s.Ambiguous += n.Ambiguous * recordings
		s.WorstResidual = math.Max(s.WorstResidual, n.WorstResidual)
		s.Templates = append(s.Templates, m.template(t, n))
	}
	for i, t := range m.templates.Of {
		for _, r := range t.Recordings {
			if r.Segment == i && r.HasShape {
				s.Points = append(s.Points, Point{t.Kind, r.Shape})
			}
		}
	}
	return s
}

// normalizesOverTime recognises the operation that takes its mean over all of the time axis,
// padding included, as in wav2vec2-base.
func normalizesOverTime(op string) bool { return strings.Contains(op, "native_group_norm.") }

func (m *Model) template(t *template.Template, n template.Exactness) Template {
	c := Template{Kind: t.Kind, Storages: len(t.Storages), Events: len(t.Events), Exact: n.Exact,
		Approximate: n.Inexact, Doubtful: m.doubts(t)}
	for _, r := range t.Recordings {
		c.Segments = append(c.Segments, r.Segment)
	}
	if t.HasShapes() {
		shapes, _ := t.Shapes()
		c.Shapes, c.Batch = len(shapes), t.Batches()
	}
	return c
}

// doubts lists the largest sizes of a template without an exact or a single formula.
func (m *Model) doubts(t *template.Template) []Doubt {
	doubts, listed, rules := []Doubt{}, map[int32]bool{}, reduction.GPU{}.Rules()
	for i, s := range t.Storages {
		f := &t.Formulas[s.Formula]
		if !f.Inexact && !f.Ambiguous || listed[s.Formula] {
			continue
		}
		listed[s.Formula] = true
		d := Doubt{Op: m.ops[s.Op], Module: m.modules[s.Module],
			Formula: f.Describe(m.templates.Variables), Residual: f.Residual}
		for _, r := range t.Recordings {
			d.Bytes = max(d.Bytes, int64(rules.Bytes(uint64(r.Sizes[i]), s.Unit)))
		}
		doubts = append(doubts, d)
	}
	slices.SortStableFunc(doubts, func(a, b Doubt) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return doubts[:min(len(doubts), mostDoubts)]
}
