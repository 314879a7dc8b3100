package template

import (
	"slices"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/memory/formula"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// calls are the operations that the template's segments have in common, with a formula for each of their numbers.
type calls struct {
	kinds    []int32           // in Trace.Calls
	numbers  []int32           // in formulas, one call's after the other's
	formulas []formula.Formula // none where nothing is known of other shapes
}

// fitCalls fits the numbers of the calls, by the segments that most of the template's are like. A first window runs a few more, which
// set the training up.
func (t *Template) fitCalls(known []trace.Call, segments []trace.Segment, vars formula.Variables) (calls, error) {
	recordings := mostCommon(t.steady(), known, segments)
	first := &segments[recordings[0].Segment]
	found := calls{kinds: first.Calls}
	if len(first.Calls) == 0 || !t.HasShapes() {
		return found, nil
	}
	shapes, of := shapesOf(recordings)
	fitter, err := formula.NewFitter(vars, shapes, nil)
	if err != nil {
		return found, err
	}
	indices := map[string]int32{}
	for i := range first.Numbers {
		sizes := make([]int64, len(recordings))
		for k, r := range recordings {
			sizes[k] = segments[r.Segment].Numbers[i]
		}
		found.numbers = append(found.numbers, found.formulaOf(sizes, of, fitter, indices))
	}
	return found, nil
}

// steady are the recordings of later windows; of all where there is one window.
func (t *Template) steady() []Recording {
	later := slices.DeleteFunc(slices.Clone(t.Recordings), func(r Recording) bool { return r.Position.Window == 0 })
	if len(later) == 0 {
		return t.Recordings
	}
	return later
}

// mostCommon are the recordings of the most common sequence of calls. Calls that have as many numbers count as equal: a GPU pads a mask where a
// length is no multiple of eight, and copies it where it is.
func mostCommon(recordings []Recording, known []trace.Call, segments []trace.Segment) []Recording {
	groups := map[string][]Recording{}
	var most []Recording
	for _, r := range recordings {
		var key strings.Builder
		for _, call := range segments[r.Segment].Calls {
			key.WriteByte(byte(known[call].Numbers))
			key.WriteString(known[call].Phase)
		}
		groups[key.String()] = append(groups[key.String()], r)
		if len(groups[key.String()]) > len(most) {
			most = groups[key.String()]
		}
	}
	return most
}

func (c *calls) formulaOf(sizes []int64, of []int, fitter *formula.Fitter, known map[string]int32) int32 {
	key := keyOf(nil, sizes)
	index, found := known[string(key)]
	if !found {
		index = int32(len(c.formulas))
		c.formulas = append(c.formulas, formulaOf(sizes, of, fitter))
		known[string(key)] = index
	}
	return index
}

// Calls gives each operation of a segment of a shape with its numbers. False where no calls with shapes were traced. Errors: those of
// formula.NewFitter.
func (t *Template) Calls(p formula.Point, kinds []trace.Call, each func(call trace.Call, numbers []int64)) (bool, error) {
	found, err := t.Base().calls()
	if err != nil || found.formulas == nil {
		return false, err
	}
	values := make([]int64, len(found.formulas))
	for i := range found.formulas {
		values[i] = int64(found.formulas[i].Size(p))
	}
	at := 0
	var numbers [trace.Product]int64
	for _, kind := range found.kinds {
		call := kinds[kind]
		for i := range call.Numbers {
			numbers[i] = values[found.numbers[at+i]]
		}
		each(call, numbers[:call.Numbers])
		at += call.Numbers
	}
	return true, nil
}
