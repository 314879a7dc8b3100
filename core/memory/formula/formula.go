// Package formula computes the size of a storage at any shape from its sizes at a few: the simplest
// sum of products of batch and lengths that gives all of them exactly.
package formula

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// monomial is a product of at most three variables.
type monomial struct{ a, b, c int16 }

func (m monomial) value(v []int64) int64 { return v[m.a] * v[m.b] * v[m.c] }

func (m monomial) float(v []int64) float64 {
	return float64(v[m.a]) * float64(v[m.b]) * float64(v[m.c])
}

// term is a monomial with its coefficient, in units of one part of the formula's divisor.
type term struct {
	monomial
	coefficient int64
}

const (
	maxTerms = 3
	// of the coefficients: sizes count bytes of whole elements, eight flags in a byte at the finest
	maxDivisor = 16
)

// Formula computes a size for any shape: the sum of its terms, divided. An inexact one has factors
// instead of coefficients, and the sizes at the traced shapes.
type Formula struct {
	terms     []term
	divisor   int64
	Unit      trace.Unit // what the size counts
	Inexact   bool
	Ambiguous bool // another formula as simple fits the traced shapes as well
	// differs between segments of one shape, as what depends on values does
	Varies   bool
	factors  [maxTerms]float64 // of an inexact formula's terms
	Residual float64           // largest relative error of an inexact formula at the traced shapes
	traced   []traced
	rivals   []Formula // of an ambiguous one: those that fit as well, and differ elsewhere
}

type traced struct {
	shape trace.Shape
	size  int64
}

// Constant is the formula of a size that is the same at every shape.
func Constant(size int64) Formula { return Formula{terms: []term{{coefficient: size}}, divisor: 1} }

// Bound is the formula of a size between two that does not follow from a shape: the larger one.
func Bound(low, high int64) Formula {
	return Formula{terms: []term{{}}, divisor: 1, Inexact: true, Varies: true,
		factors: [maxTerms]float64{float64(high)}, Residual: 1 - float64(low)/float64(high)}
}

// IsConstant reports whether the size is the same at every shape.
func (f *Formula) IsConstant() bool {
	return !f.Inexact && len(f.terms) == 1 && f.terms[0].monomial == monomial{}
}

// Size evaluates the formula, in its unit.
func (f *Formula) Size(p Point) uint64 {
	if f.Inexact {
		return f.inexactSize(p)
	}
	sum, ok := f.sum(p)
	if !ok {
		return trace.TooLarge
	}
	return uint64(max(sum/f.divisor, 0))
}

// sum adds up the terms; false where they might overflow.
func (f *Formula) sum(p Point) (sum int64, ok bool) {
	magnitude := 0.0
	for i := range f.terms {
		t := &f.terms[i]
		magnitude += math.Abs(float64(t.coefficient)) * t.float(p.values)
		sum += t.coefficient * t.value(p.values)
	}
	return sum, magnitude <= 1<<62
}

func (f *Formula) inexactSize(p Point) uint64 {
	if i := f.recorded(p); i >= 0 {
		return uint64(f.traced[i].size)
	}
	size := 0.0
	for i, t := range f.terms {
		size += f.factors[i] * t.float(p.values)
	}
	return uint64(min(math.Ceil(size), trace.TooLarge))
}

// extrapolated is how far off an inexact formula may be away from the traced shapes, in errors that
// it has at these.
const extrapolated = 10

// Doubt is how far off the size may be at a point, in the formula's unit: 0 where it is exact, and
// where it was traced.
func (f *Formula) Doubt(p Point) uint64 {
	switch {
	case f.Inexact && f.recorded(p) < 0:
		return uint64(float64(f.Size(p)) * min(1, extrapolated*f.Residual))
	case f.Ambiguous:
		size, widest := f.Size(p), uint64(0)
		for i := range f.rivals {
			other := f.rivals[i].Size(p)
			widest = max(widest, max(size, other)-min(size, other))
		}
		return widest
	}
	return 0
}

// IsDoubtful reports whether there are points at which the size is not certain.
func (f *Formula) IsDoubtful() bool { return f.Inexact || f.Ambiguous }

// recorded is the index of a point among the traced ones, -1 elsewhere.
func (f *Formula) recorded(p Point) int {
	return slices.IndexFunc(f.traced, func(t traced) bool { return t.shape == p.shape })
}
