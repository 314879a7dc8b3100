package template

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/reduction"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
	"github.com/asrconfig/asrconfig-go/core/parallel"
)

// fit finds the formulas of all templates. One whose batch or lengths vary too little to
// distinguish formulas is fitted again with those that other templates confirmed.
func (b *builder) fit() error {
	confirmed := formula.Confirmed{}
	recorded, vars := b.trace, b.Variables
	if err := b.fitEach(b.Templates, nil); err != nil {
		return err
	}
	var doubtful []*Template
	for _, t := range b.Templates {
		t.calls = sync.OnceValue(func() calls { return t.fitCalls(recorded, vars) })
		for _, f := range t.Formulas {
			if !f.IsDoubtful() {
				confirmed.Add(f)
			}
		}
		if slices.ContainsFunc(t.Formulas, func(f formula.Formula) bool { return f.Ambiguous }) {
			doubtful = append(doubtful, t)
		}
	}
	return b.fitEach(doubtful, confirmed)
}

func (b *builder) fitEach(templates []*Template, confirmed formula.Confirmed) error {
	return parallel.Do(len(templates), func(i int) error {
		templates[i].fit(b.Variables, confirmed)
		return nil
	})
}

func (t *Template) fit(vars formula.Variables, confirmed formula.Confirmed) {
	f := newFitted(vars, t.Recordings, confirmed)
	sizes := make([]int64, len(t.Recordings))
	for i := range t.Storages {
		s := &t.Storages[i]
		for k, r := range t.Recordings {
			sizes[k] = r.Sizes[i]
		}
		s.Formula = f.add(sizes, s.Unit)
	}
	t.Formulas = f.formulas
}

// fitted are the different formulas of sizes in some recordings. Sizes that are the same everywhere
// share one, so that a model of many equal layers costs as much as one layer.
type fitted struct {
	formulas []formula.Formula
	indices  map[string]int32 // by unit and sizes
	shapeOf  []int
	fitter   *formula.Fitter // nil without shapes
	key      []byte          // of the latest sizes, to be used again
}

func newFitted(vars formula.Variables, recordings []Recording,
	confirmed formula.Confirmed) *fitted {
	shapes, shapeOf := shapesOf(recordings)
	f := &fitted{indices: map[string]int32{}, shapeOf: shapeOf}
	if haveShapes(recordings) {
		f.fitter = formula.NewFitter(vars, shapes, confirmed)
	}
	return f
}

// add returns the index of the formula of sizes in all recordings.
func (f *fitted) add(sizes []int64, unit trace.Unit) int32 {
	f.key = binary.LittleEndian.AppendUint64(f.key[:0],
		uint64(unit.Count)<<32|uint64(unit.Columns))
	for _, size := range sizes {
		f.key = binary.LittleEndian.AppendUint64(f.key, uint64(size))
	}
	index, ok := f.indices[string(f.key)]
	if !ok {
		index = int32(len(f.formulas))
		made := formulaOf(sizes, f.shapeOf, f.fitter)
		made.Unit = unit
		f.formulas, f.indices[string(f.key)] = append(f.formulas, made), index
	}
	return index
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

// Inexactness counts the storages whose sizes are not certain.
type Inexactness struct {
	Inexact, Ambiguous int
	WorstResidual      float64
}

// CountAt adds a template's storages at a point, where what was traced is exact.
func (n *Inexactness) CountAt(t *Template, p formula.Point) {
	for _, s := range t.Storages {
		f := &t.Formulas[s.Formula]
		switch doubtful := f.Doubt(p) > 0; {
		case f.Inexact && (f.Varies || doubtful):
			n.Inexact++
			n.WorstResidual = max(n.WorstResidual, f.Residual)
		case doubtful:
			n.Ambiguous++
		}
	}
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

// calls are the operations that the template's segments have in common, with a formula for each of
// their numbers.
type calls struct {
	kinds    []trace.Call
	numbers  []int32           // in formulas, one call's after the other's
	formulas []formula.Formula // none where nothing is known of other shapes
}

// fitCalls fits the numbers of the calls, by the segments that most of the template's are like. A
// first window runs a few more, which set the training up.
func (t *Template) fitCalls(recorded *trace.Trace, vars formula.Variables) (common calls) {
	recordings := mostCommon(t.steady(), recorded)
	first := &recorded.Segments[recordings[0].Segment]
	if len(first.Calls) == 0 || !t.HasShapes() {
		return common
	}
	for _, kind := range first.Calls {
		common.kinds = append(common.kinds, recorded.Calls[kind])
	}
	all := newFitted(vars, recordings, nil)
	sizes := make([]int64, len(recordings))
	for i := range first.Numbers {
		for k, r := range recordings {
			sizes[k] = recorded.Segments[r.Segment].Numbers[i]
		}
		common.numbers = append(common.numbers, all.add(sizes, trace.Unit{}))
	}
	common.formulas = all.formulas
	return common
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
func mostCommon(recordings []Recording, recorded *trace.Trace) []Recording {
	groups := map[string][]Recording{}
	var largest []Recording
	for _, r := range recordings {
		var key strings.Builder
		for _, call := range recorded.Segments[r.Segment].Calls {
			key.WriteByte(byte(recorded.Calls[call].Numbers))
			key.WriteString(recorded.Calls[call].Phase)
		}
		groups[key.String()] = append(groups[key.String()], r)
		if len(groups[key.String()]) > len(largest) {
			largest = groups[key.String()]
		}
	}
	return largest
}

// Calls returns each operation of a segment of a shape with its numbers. False where no calls with
// shapes were traced.
func (t *Template) Calls(p formula.Point, visit func(call trace.Call, numbers []int64)) bool {
	c := t.Base().calls()
	if c.formulas == nil {
		return false
	}
	values := make([]int64, len(c.formulas))
	for i := range c.formulas {
		values[i] = int64(c.formulas[i].Size(p))
	}
	offset := 0
	var numbers [trace.Product]int64
	for _, call := range c.kinds {
		for i := range call.Numbers {
			numbers[i] = values[c.numbers[offset+i]]
		}
		visit(call, numbers[:call.Numbers])
		offset += call.Numbers
	}
	return true
}
