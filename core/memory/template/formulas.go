package template

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
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

// Live is the most that a segment holds at once of its own storages at a point, and how much of
// that may be off.
func (t *Template) Live(p formula.Point, rules reduction.Rules) (bytes, doubt uint64) {
	sizes, doubts := t.sizesAt(p, rules)
	var live, uncertain uint64
	for _, e := range t.Events {
		if e < 0 {
			f := t.Storages[^e].Formula
			live, uncertain = live-sizes[f], uncertain-doubts[f]
			continue
		}
		f := t.Storages[e].Formula
		live, uncertain = live+sizes[f], uncertain+doubts[f]
		bytes, doubt = max(bytes, live), max(doubt, uncertain)
	}
	return bytes, doubt
}

// sizesAt returns for each formula the bytes at a point, and by how many they may be off.
func (t *Template) sizesAt(p formula.Point, rules reduction.Rules) (sizes, doubts []uint64) {
	sizes, doubts = make([]uint64, len(t.Formulas)), make([]uint64, len(t.Formulas))
	for i := range t.Formulas {
		f := &t.Formulas[i]
		sizes[i] = rules.Bytes(f.Size(p), f.Unit)
		if f.Unit.Count == trace.Bytes {
			doubts[i] = f.Doubt(p)
		}
	}
	return sizes, doubts
}

// IsCertain reports whether every size is exact at every point, as far as the traced shapes show.
func (t *Template) IsCertain() bool {
	return !slices.ContainsFunc(t.Formulas, func(f formula.Formula) bool { return f.IsDoubtful() })
}

// ExactnessAt counts formulas as Exactness does, by what they are at one point: what was traced
// there is exact.
func (t *Template) ExactnessAt(p formula.Point) Exactness {
	var n Exactness
	for _, s := range t.Storages {
		switch f := &t.Formulas[s.Formula]; {
		case f.Inexact && (f.Varies || f.Doubt(p) > 0):
			n = n.Plus(Exactness{Inexact: 1, WorstResidual: f.Residual})
		case f.Ambiguous && f.Doubt(p) > 0:
			n = n.Plus(Exactness{Exact: 1, Ambiguous: 1})
		default:
			n.Exact++
		}
	}
	return n
}

// calls are the operations that the template's segments have in common, with a formula for each of
// their numbers.
type calls struct {
	kinds    []int32           // in Trace.Calls
	numbers  []int32           // in formulas, one call's after the other's
	formulas []formula.Formula // none where nothing is known of other shapes
}

// fitCalls fits the numbers of the calls, by the segments that most of the template's are like. A
// first window runs a few more, which set the training up.
func (t *Template) fitCalls(recorded []trace.Call, segments []trace.Segment,
	vars formula.Variables) (calls, error) {
	recordings := mostCommon(t.steady(), recorded, segments)
	first := &segments[recordings[0].Segment]
	fitted := calls{kinds: first.Calls}
	if len(first.Calls) == 0 || !t.HasShapes() {
		return fitted, nil
	}
	shapes, shapeOf := shapesOf(recordings)
	fitter, err := formula.NewFitter(vars, shapes, nil)
	if err != nil {
		return fitted, err
	}
	indices := map[string]int32{}
	for i := range first.Numbers {
		sizes := make([]int64, len(recordings))
		for k, r := range recordings {
			sizes[k] = segments[r.Segment].Numbers[i]
		}
		fitted.numbers = append(fitted.numbers, fitted.formulaOf(sizes, shapeOf, fitter, indices))
	}
	return fitted, nil
}

// steady are the recordings of later windows; of all where there is one window.
func (t *Template) steady() []Recording {
	later := slices.DeleteFunc(slices.Clone(t.Recordings), func(r Recording) bool {
		return r.Position.Window == 0
	})
	if len(later) == 0 {
		return t.Recordings
	}
	return later
}

// mostCommon returns the recordings of the most common sequence of calls. Calls with the same count
// of numbers are equal: a GPU pads a mask where a length is no multiple of eight, and copies it
// where it is.
func mostCommon(recordings []Recording, recorded []trace.Call,
	segments []trace.Segment) []Recording {
	groups := map[string][]Recording{}
	var largest []Recording
	for _, r := range recordings {
		var key strings.Builder
		for _, call := range segments[r.Segment].Calls {
			key.WriteByte(byte(recorded[call].Numbers))
			key.WriteString(recorded[call].Phase)
		}
		groups[key.String()] = append(groups[key.String()], r)
		if len(groups[key.String()]) > len(largest) {
			largest = groups[key.String()]
		}
	}
	return largest
}

func (c *calls) formulaOf(sizes []int64, shapeOf []int, fitter *formula.Fitter,
	indices map[string]int32) int32 {
	key := keyOf(nil, sizes)
	index, ok := indices[string(key)]
	if !ok {
		index = int32(len(c.formulas))
		c.formulas = append(c.formulas, formulaOf(sizes, shapeOf, fitter))
		indices[string(key)] = index
	}
	return index
}

// Calls returns each operation of a segment of a shape with its numbers. False where no calls with
// shapes were traced. Errors: those of formula.NewFitter.
func (t *Template) Calls(p formula.Point, kinds []trace.Call,
	visit func(call trace.Call, numbers []int64)) (bool, error) {
	c, err := t.Base().calls()
	if err != nil || c.formulas == nil {
		return false, err
	}
	values := make([]int64, len(c.formulas))
	for i := range c.formulas {
		values[i] = int64(c.formulas[i].Size(p))
	}
	offset := 0
	var numbers [trace.Product]int64
	for _, kind := range c.kinds {
		call := kinds[kind]
		for i := range call.Numbers {
			numbers[i] = values[c.numbers[offset+i]]
		}
		visit(call, numbers[:call.Numbers])
		offset += call.Numbers
	}
	return true, nil
}
