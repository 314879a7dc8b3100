package template

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/parallel"
)

// fit finds the formulas of all templates. One whose batch or lengths vary too little to
// distinguish formulas is fitted once more with those that other templates confirmed.
func (b *builder) fit() error {
	confirmed := formula.Confirmed{}
	recorded, segments, vars := b.trace.Calls, b.trace.Segments, b.Variables
	if err := b.fitEach(b.Templates, nil); err != nil {
		return err
	}
	var doubtful []*Template
	for _, t := range b.Templates {
		for _, f := range t.Formulas {
			if !f.Inexact && !f.Ambiguous {
				confirmed.Add(f)
			}
		}
	}
	for _, t := range b.Templates {
		t.calls = sync.OnceValues(func() (calls, error) {
			return t.fitCalls(recorded, segments, vars)
		})
		if slices.ContainsFunc(t.Formulas, func(f formula.Formula) bool { return f.Ambiguous }) {
			doubtful = append(doubtful, t)
		}
	}
	return b.fitEach(doubtful, confirmed)
}

func (b *builder) fitEach(templates []*Template, confirmed formula.Confirmed) error {
	return parallel.Do(len(templates), func(i int) error {
		return templates[i].fit(b.Variables, confirmed)
	})
}

// fit finds the formulas of a template. Storages whose sizes are the same everywhere share one, so
// that a model of many equal layers costs as much as one layer.
func (t *Template) fit(vars formula.Variables, confirmed formula.Confirmed) (err error) {
	shapes, shapeOf := t.Shapes()
	var fitter *formula.Fitter // nil without shapes
	if t.HasShapes() {
		if fitter, err = formula.NewFitter(vars, shapes, confirmed); err != nil {
			return err
		}
	}
	t.Formulas = nil
	indices := map[string]int32{} // by unit and sizes
	sizes, key := make([]int64, len(t.Recordings)), make([]byte, 0, 8+8*len(t.Recordings))
	for i := range t.Storages {
		s := &t.Storages[i]
		for k, r := range t.Recordings {
			sizes[k] = r.Sizes[i]
		}
		key = keyOf(binary.LittleEndian.AppendUint64(key[:0],
			uint64(s.Unit.Count)<<32|uint64(s.Unit.Columns)), sizes)
		index, ok := indices[string(key)]
		if !ok {
			f := formulaOf(sizes, shapeOf, fitter)
			f.Unit = s.Unit
			index = t.addFormula(f)
			indices[string(key)] = index
		}
		s.Formula = index
	}
	return nil
}

// keyOf appends sizes to a storage's key.
func keyOf(key []byte, sizes []int64) []byte {
	for _, size := range sizes {
		key = binary.LittleEndian.AppendUint64(key, uint64(size))
	}
	return key
}

func (t *Template) addFormula(f formula.Formula) int32 {
	t.Formulas = append(t.Formulas, f)
	return int32(len(t.Formulas) - 1)
}

// formulaOf fits the sizes of a storage in all recordings; shapeOf has the shape of each. A size
// that differs between two segments of one shape depends on the data.
func formulaOf(sizes []int64, shapeOf []int, fitter *formula.Fitter) formula.Formula {
	low, high := slices.Min(sizes), slices.Max(sizes)
	switch {
	case low == high:
		return formula.Constant(low)
	case fitter == nil:
		return formula.Bound(low, high)
	}
	byShape := slices.Repeat([]int64{-1}, slices.Max(shapeOf)+1)
	depends := false
	for i, size := range sizes {
		largest := &byShape[shapeOf[i]]
		depends = depends || *largest >= 0 && *largest != size
		*largest = max(*largest, size)
	}
	if depends {
		bound := fitter.Approximate(byShape)
		bound.Varies = true
		return bound
	}
	return fitter.Fit(byShape)
}

// Exactness counts what formulas are like, by storage.
type Exactness struct {
	Exact, Inexact, Ambiguous int
	WorstResidual             float64
}

// Plus adds two up.
func (e Exactness) Plus(other Exactness) Exactness {
	return Exactness{e.Exact + other.Exact, e.Inexact + other.Inexact, e.Ambiguous +
		other.Ambiguous, math.Max(e.WorstResidual, other.WorstResidual)}
}

// Exactness of the template's storages.
func (t *Template) Exactness() Exactness {
	var n Exactness
	for _, s := range t.Storages {
		switch f := &t.Formulas[s.Formula]; {
		case f.Inexact:
			n.Inexact++
			n.WorstResidual = math.Max(n.WorstResidual, f.Residual)
		case f.Ambiguous:
			n.Ambiguous++
			fallthrough
		default:
			n.Exact++
		}
	}
	return n
}
