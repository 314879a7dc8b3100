package formula

import (
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// derivation makes a variable of a length n.
type derivation struct {
	times, plus int64
	multiple    int64 // round up to one of these; 0: do not
}

// The derivations, in order of preference. 2n+1 is the extended label sequence of CTC, 2n-1 the
// relative positions of a sequence, n+1 what padding with a class token or an even kernel makes;
// attention kernels round up (query blocks of the memory efficient kernel to 32, masks to 8 or 16
// elements).
var derivations = []derivation{
	{times: 1}, {times: 2, plus: 1}, {times: 1, plus: 1}, {times: 2, plus: -1},
	{times: 1, multiple: 8}, {times: 1, multiple: 16}, {times: 1, multiple: 32},
	{times: 1, multiple: 64}, {times: 1, multiple: 128},
}

func (d derivation) apply(n int64) int64 {
	n = d.times*n + d.plus
	if d.multiple > 0 {
		n = (n + d.multiple - 1) / d.multiple * d.multiple
	}
	return n
}

// Variables are what sizes are computed from, in the order: 1, the batch, then every derivation of
// every length of the trace and of the labels.
type Variables []trace.Length

const (
	variableOne   = 0
	variableBatch = 1
	variableFirst = 2
)

// Point is a shape with the values of its variables.
type Point struct {
	shape  trace.Shape
	values []int64
}

func (v Variables) bases() int { return len(v) + 1 }

func (v Variables) count() int { return variableFirst + v.bases()*len(derivations) }

// index is the index of a derivation of a base; the last base is the labels.
func (v Variables) index(base, derived int) int {
	return variableFirst + base*len(derivations) + derived
}

// At computes the variables of a shape.
func (v Variables) At(shape trace.Shape) (Point, error) {
	values := append(make([]int64, 0, v.count()), 1, shape.Batch)
	var lengths [trace.MaxLengths + 1]int64
	lengths[0] = shape.Length
	for i, r := range v {
		if i > 0 {
			lengths[i] = floorDiv(lengths[*r.Of]+2*r.Padding-r.Dilation*(r.Kernel-1)-1, r.Stride) +
				1
		}
		if lengths[i] < 1 {
			return Point{}, fault.New(fault.InvalidArgument, "pass a longer input",
				"a length of %d is too short for this model: %s would be %d",
				shape.Length, r.Name, lengths[i])
		}
	}
	lengths[len(v)] = shape.Labels
	for _, n := range lengths[:v.bases()] {
		for _, d := range derivations {
			values = append(values, d.apply(n))
		}
	}
	return Point{shape, values}, nil
}

// AtTraced computes the variables of a shape of the trace, which were checked.
func (v Variables) AtTraced(shape trace.Shape) Point {
	p, _ := v.At(shape)
	return p
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
