package memory

import (
	"cmp"
	"math"
	"slices"
)

// Summary is what a trace holds and how well its sizes are understood.
type Summary struct {
	About         map[string]any `json:"about"`
	Births        int            `json:"births"`         // storages in the trace
	Exact         int            `json:"exact"`          // of those, with a formula that gives every traced size
	Approximate   int            `json:"approximate"`    // the others
	Ambiguous     int            `json:"ambiguous"`      // of the exact ones, those with more than one formula as simple
	WorstResidual float64        `json:"worst_residual"` // largest relative error at a traced shape, 0 to 1
	Points        []Point        `json:"points"`         // the traced segments that have a shape, in order
	Classes       []Class        `json:"classes"`
}

// Point is the shape of a traced segment.
type Point struct {
	Kind string `json:"kind"`
	Shape
}

// Class is a structure that traced segments share.
type Class struct {
	Kind        string  `json:"kind"`
	Segments    []int   `json:"segments"` // of the trace
	Births      int     `json:"births"`   // in each
	Events      int     `json:"events"`   // in each, deaths of earlier segments' storages aside
	Shapes      int     `json:"shapes"`   // different ones
	Batch       [2]int  `json:"batch"`    // smallest and largest traced
	Exact       int     `json:"exact"`
	Approximate int     `json:"approximate"`
	Doubtful    []Doubt `json:"doubtful"` // the largest sizes without an exact or a single formula
}

// Doubt is a size whose formula is inexact, or one of several.
type Doubt struct {
	Op       string  `json:"op"`
	Module   string  `json:"module"`
	Formula  string  `json:"formula"` // in bytes, or in rows of a column sum; B is the batch, up8(n) is n rounded up to a multiple of 8
	Residual float64 `json:"residual"`
	Bytes    int64   `json:"bytes"` // largest traced; of a column sum, on the usual GPU
}

const mostDoubts = 8 // listed of one class

// Summary sums the trace up.
func (m *Model) Summary() Summary {
	s := Summary{About: m.about, Points: []Point{}, Classes: []Class{}}
	for _, c := range m.classes {
		n := c.fitted()
		s.Births += len(c.op) * len(c.members)
		s.Exact += n.exact * len(c.members)
		s.Approximate += n.inexact * len(c.members)
		s.Ambiguous += n.ambiguous * len(c.members)
		s.WorstResidual = math.Max(s.WorstResidual, n.worst)
		s.Classes = append(s.Classes, m.classSummary(c, n))
	}
	for i, c := range m.of {
		for _, x := range c.members {
			if x.segment == i && x.shaped {
				s.Points = append(s.Points, Point{c.kind, x.shape})
			}
		}
	}
	return s
}

func (m *Model) classSummary(c *class, n fitted) Class {
	shapes, _ := c.shapes()
	s := Class{Kind: c.kind, Births: len(c.op), Events: len(c.events), Exact: n.exact, Approximate: n.inexact, Doubtful: []Doubt{}}
	for _, x := range c.members {
		s.Segments = append(s.Segments, x.segment)
	}
	if c.shaped() {
		t := c.traced()
		s.Shapes, s.Batch = len(shapes), [2]int{int(t.batch.least), int(t.batch.most)}
	}
	seen := map[int32]bool{}
	for birth, index := range c.form {
		f := &c.forms[index]
		if !f.inexact && !f.ambiguous || seen[index] {
			continue
		}
		seen[index] = true
		d := Doubt{Op: m.ops[c.op[birth]], Module: m.modules[c.module[birth]], Formula: f.describe(m.vars), Residual: f.residual}
		for _, x := range c.members {
			d.Bytes = max(d.Bytes, int64(GPU{}.reducer().bytes(uint64(x.sizes[birth]), c.columns[birth])))
		}
		s.Doubtful = append(s.Doubtful, d)
	}
	slices.SortStableFunc(s.Doubtful, func(a, b Doubt) int { return cmp.Compare(b.Bytes, a.Bytes) })
	s.Doubtful = s.Doubtful[:min(len(s.Doubtful), mostDoubts)]
	return s
}
