package formula

import (
	"math"
	"slices"

	"github.com/asrconfig/asrconfig-go/core/memory/trace"
)

// Fitter finds formulas of sizes at the same shapes.
type Fitter struct {
	shapes    []trace.Shape
	points    []Point
	probes    []Point // of shapes that were not traced, to tell formulas apart
	vars      Variables
	confirmed Confirmed
	tried     *candidates // nil until a size varies
	basis     []candidate
}

// NewFitter prepares for sizes at these shapes.
func NewFitter(vars Variables, shapes []trace.Shape, confirmed Confirmed) (*Fitter, error) {
	f := &Fitter{shapes: shapes, vars: vars, confirmed: confirmed}
	for _, s := range shapes {
		p, err := vars.At(s)
		if err != nil {
			return nil, err
		}
		f.points = append(f.points, p)
	}
	for _, s := range probesOf(shapes) {
		if p, err := vars.At(s); err == nil {
			f.probes = append(f.probes, p)
		}
	}
	return f, nil
}

// probesOf returns shapes off the traced ones, longer and with other remainders, that stay where
// the traced ones never vary.
func probesOf(shapes []trace.Shape) []trace.Shape {
	upper, lower := shapes[0], shapes[0]
	for _, s := range shapes {
		upper = trace.Shape{Batch: max(upper.Batch, s.Batch), Length: max(upper.Length, s.Length),
			Labels: max(upper.Labels, s.Labels)}
		lower = trace.Shape{Batch: min(lower.Batch, s.Batch), Length: min(lower.Length, s.Length),
			Labels: min(lower.Labels, s.Labels)}
	}
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
