package template

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
)

// fit finds the formulas of all templates. What one cannot tell apart, because its batch or its lengths vary too little,
// another one may: such a template is fitted once more with what the others know.
func (b *builder) fit() error {
	confirmed := formula.Confirmed{}
	for _, t := range b.Templates {
		if err := t.fit(b.Variables, nil); err != nil {
			return err
		}
		for _, f := range t.Formulas {
			if !f.Inexact && !f.Ambiguous {
				confirmed.Add(f)
			}
		}
	}
	for _, t := range b.Templates {
		if !slices.ContainsFunc(t.Formulas, func(f formula.Formula) bool { return f.Ambiguous }) {
			continue
		}
		if err := t.fit(b.Variables, confirmed); err != nil {
			return err
		}
	}
	return nil
}

// fit finds the formulas of a template. Storages whose sizes are the same everywhere share one, so that a model of many equal
// layers costs as much as one layer.
func (t *Template) fit(vars formula.Variables, confirmed formula.Confirmed) error {
	shapes, of := t.Shapes()
	var fitter *formula.Fitter
	if t.HasShapes() {
		var err error
		if fitter, err = formula.NewFitter(vars, shapes, confirmed); err != nil {
			return err
		}
	}
	t.Formulas = nil
	known := map[string]int32{}
	key := make([]byte, 0, 8+8*len(t.Recordings))
	for i := range t.Storages {
		s := &t.Storages[i]
		key = binary.LittleEndian.AppendUint64(key[:0], uint64(s.Unit.Count)<<32|uint64(s.Unit.Columns))
		key = t.appendSizes(key, i)
		index, found := known[string(key)]
		if !found {
			f := t.formulaOf(i, len(shapes), of, fitter)
			f.Unit = s.Unit
			index = t.addFormula(f)
			known[string(key)] = index
		}
		s.Formula = index
	}
	return nil
}

// appendSizes writes a storage's sizes in all recordings, or one where all are equal.
func (t *Template) appendSizes(key []byte, storage int) []byte {
	start, size := len(key), t.Recordings[0].Sizes[storage]
	same := true
	for _, r := range t.Recordings {
		same = same && r.Sizes[storage] == size
		key = binary.LittleEndian.AppendUint64(key, uint64(r.Sizes[storage]))
	}
	if same {
		return key[:start+8]
	}
	return key
}

func (t *Template) addFormula(f formula.Formula) int32 {
	t.Formulas = append(t.Formulas, f)
	return int32(len(t.Formulas) - 1)
}

// formulaOf fits one storage. A size that differs between two segments of one shape depends on the data.
func (t *Template) formulaOf(storage, shapes int, of []int, fitter *formula.Fitter) formula.Formula {
	least, most := t.extremes(storage)
	switch {
	case least == most:
		return formula.Constant(least)
	case fitter == nil:
		return formula.Bound(least, most)
	}
	sizes := slices.Repeat([]int64{-1}, shapes)
	depends := false
	for i, r := range t.Recordings {
		size := &sizes[of[i]]
		depends = depends || *size >= 0 && *size != r.Sizes[storage]
		*size = max(*size, r.Sizes[storage])
	}
	if depends {
		return fitter.Approximate(sizes)
	}
	return fitter.Fit(sizes)
}

// extremes are the smallest and the largest recorded size.
func (t *Template) extremes(storage int) (least, most int64) {
	least = t.Recordings[0].Sizes[storage]
	for _, r := range t.Recordings {
		least, most = min(least, r.Sizes[storage]), max(most, r.Sizes[storage])
	}
	return least, most
}

// Exactness counts what formulas are like, by storage.
type Exactness struct {
	Exact, Inexact, Ambiguous int
	WorstResidual             float64
}

// Plus adds two up.
func (e Exactness) Plus(other Exactness) Exactness {
	return Exactness{e.Exact + other.Exact, e.Inexact + other.Inexact, e.Ambiguous + other.Ambiguous, math.Max(e.WorstResidual, other.WorstResidual)}
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
