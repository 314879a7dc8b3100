package template

import (
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

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
