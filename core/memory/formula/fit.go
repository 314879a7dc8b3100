package formula

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Fitter finds formulas of sizes at the same shapes.
type Fitter struct {
	points    []Point
	probes    []Point // of shapes that were not traced, to tell formulas apart
	vars      Variables
	confirmed Confirmed
	tried     *candidates // nil until a size varies
	basis     []candidate
}

// NewFitter prepares for sizes at these shapes.
func NewFitter(vars Variables, shapes []trace.Shape, confirmed Confirmed) *Fitter {
	f := &Fitter{vars: vars, confirmed: confirmed}
	for _, s := range shapes {
		f.points = append(f.points, vars.AtTraced(s))
	}
	for _, s := range probesOf(shapes) {
		if p, err := vars.At(s); err == nil {
			f.probes = append(f.probes, p)
		}
	}
	return f
}

// probesOf returns shapes off the traced ones, longer and with other remainders, that stay where
// the traced ones never vary.
func probesOf(shapes []trace.Shape) []trace.Shape {
	lower, upper := trace.Bounds(shapes)
	var probes []trace.Shape
	for k := range int64(8) {
		probe := trace.Shape{Batch: upper.Batch + 1 + 3*k, Length: upper.Length*2 + 61*k*k,
			Labels: upper.Labels + 5 + 2*k*k}
		if lower.Batch == upper.Batch {
			probe.Batch = upper.Batch
		}
		if lower.Length == upper.Length {
			probe.Length = upper.Length
		}
		if lower.Labels == upper.Labels {
			probe.Labels = upper.Labels
		}
		probes = append(probes, probe)
	}
	return probes
}

// Fit finds the formula of sizes, one for each shape.
func (f *Fitter) Fit(sizes []int64) Formula {
	if !slices.ContainsFunc(sizes, func(n int64) bool { return n != sizes[0] }) {
		return Constant(sizes[0])
	}
	f.prepare()
	for _, t := range f.tried.tiers {
		if fitted, ok := f.best(f.multiples(t, sizes)); ok {
			return fitted
		}
	}
	if fitted, ok := f.best(f.pairs(sizes)); ok {
		return fitted
	}
	if fitted, ok := f.best(f.triples(sizes)); ok {
		return fitted
	}
	return f.Approximate(sizes)
}

func (f *Fitter) prepare() {
	if f.tried == nil {
		f.tried = newCandidates(f.vars, f.points)
		f.basis = f.tried.basis()
	}
}

// Confirmed are the products of lengths of formulas that are exact and the only ones to fit.
type Confirmed map[[2]int16]bool

// Add takes over a formula's products.
func (k Confirmed) Add(f Formula) {
	for _, t := range f.terms {
		k[[2]int16{t.b, t.c}] = true
	}
}

func (k Confirmed) has(f Formula) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool { return !k[[2]int16{t.b, t.c}] })
}

// best prefers formulas of confirmed products, then whole coefficients, then the earlier one.
func (f *Fitter) best(fitting []Formula) (fitted Formula, ok bool) {
	if len(fitting) == 0 {
		return Formula{}, false
	}
	if confirmed := slices.DeleteFunc(slices.Clone(fitting), func(x Formula) bool {
		return !f.confirmed.has(x)
	}); len(confirmed) > 0 {
		fitting = confirmed
	}
	fitted = fitting[0]
	if i := slices.IndexFunc(fitting, func(x Formula) bool { return x.divisor == 1 }); i >= 0 {
		fitted = fitting[i]
	}
	rivals := slices.DeleteFunc(slices.Clone(fitting), func(x Formula) bool {
		return !f.differ(&fitted, &x)
	})
	if fitted.Ambiguous = len(rivals) > 0; fitted.Ambiguous {
		fitted.rivals = rivals
	}
	return fitted, true
}

// differ reports whether two formulas differ where it matters. Half of an odd length, rounded, is
// as good as its half.
func (f *Fitter) differ(a, b *Formula) bool {
	return slices.ContainsFunc(f.probes, func(p Point) bool {
		x, y := float64(a.Size(p)), float64(b.Size(p))
		return math.Abs(x-y) > ambiguity*max(x, y)
	})
}

const ambiguity = 0.01

// Approximate returns a formula for sizes that follow none. Where a kernel rounds inside a sum, a
// constant part and a monomial are all but exact; else (the count of masked frames, say) it is the
// monomial whose ratio to the sizes varies least. Either is scaled to be a little too large rather
// than too small.
func (f *Fitter) Approximate(sizes []int64) Formula {
	f.prepare()
	best := Formula{Inexact: true, Residual: math.Inf(1), divisor: 1}
	for _, c := range f.basis {
		best = f.closer(best, sizes, [maxTerms]float64{1}, c)
	}
	if best.Residual > maxError {
		for _, c := range f.basis {
			if parts, ok := f.withConstant(c); ok {
				if x, ok := regress(sizes, parts); ok {
					if fitted := f.closer(best, sizes, x,
						parts[:]...); fitted.Residual <= maxError {
						best = fitted
					}
				}
			}
		}
	}
	for i, p := range f.points {
		best.traced = append(best.traced, traced{p.shape, sizes[i]})
	}
	return best
}

// maxError is the relative error up to which a sum with any factors counts as more than chance.
const maxError = 0.002

// withConstant returns a monomial with its constant part: B for what has B in it, else 1.
func (f *Fitter) withConstant(c candidate) ([2]candidate, bool) {
	for _, part := range f.basis {
		if part.a == c.a && part.b == variableOne && part.c == variableOne &&
			part.monomial != c.monomial {
			return [2]candidate{part, c}, true
		}
	}
	return [2]candidate{}, false
}

// closer returns the formula of some parts times factors, scaled up to no less than every size, if
// it is better than best.
func (f *Fitter) closer(best Formula, sizes []int64, factors [maxTerms]float64,
	parts ...candidate) Formula {
	low, high := math.Inf(1), 0.0
	for i, n := range sizes {
		sum := 0.0
		for k, p := range parts {
			sum += factors[k] * float64(p.values[i])
		}
		if sum <= 0 {
			return best
		}
		low, high = min(low, float64(n)/sum), max(high, float64(n)/sum)
	}
	if residual := 1 - low/high; residual < best.Residual {
		best.Residual, best.terms = residual, nil
		for k, p := range parts {
			best.factors[k] = factors[k] * high
			best.terms = append(best.terms, term{monomial: p.monomial})
		}
	}
	return best
}

// regress finds the two factors with the least squared relative errors; false unless both are
// positive and a shape is left to judge them by.
func regress(sizes []int64, parts [2]candidate) (x [maxTerms]float64, ok bool) {
	if len(sizes) < 3 {
		return x, false
	}
	var aa, ab, bb, a, b float64
	for i, n := range sizes {
		p, q := float64(parts[0].values[i])/float64(max(n, 1)),
			float64(parts[1].values[i])/float64(max(n, 1))
		aa, ab, bb, a, b = aa+p*p, ab+p*q, bb+q*q, a+p, b+q
	}
	determinant := aa*bb - ab*ab
	x[0], x[1] = (a*bb-b*ab)/determinant, (b*aa-a*ab)/determinant
	return x, x[0] > 0 && x[1] > 0
}
