package memory

import (
	"math"
	"math/bits"
	"slices"
)

// fitter finds the forms of a class: of each birth, the simplest sum of monomials that gives its size at every traced
// shape exactly.
type fitter struct {
	shapes []Shape
	rows   [][]int64 // variables of each shape
	probes [][]int64 // variables of shapes that were not traced, to tell forms apart
	vars   variables
	known  familiar
	tried  *candidates // nil until a size varies
	basis  []candidate
}

func newFitter(vars variables, shapes []Shape, known familiar) (*fitter, error) {
	f := &fitter{shapes: shapes, vars: vars, known: known}
	for _, s := range shapes {
		row, err := vars.values(s, nil)
		if err != nil {
			return nil, err
		}
		f.rows = append(f.rows, row)
	}
	for _, s := range probesOf(shapes) {
		if row, err := vars.values(s, nil); err == nil {
			f.probes = append(f.probes, row)
		}
	}
	return f, nil
}

// probesOf gives shapes off the traced ones, longer and with other remainders, that stay where a class never varies.
func probesOf(shapes []Shape) []Shape {
	most, least := shapes[0], shapes[0]
	for _, s := range shapes {
		most = Shape{max(most.Batch, s.Batch), max(most.Length, s.Length), max(most.Labels, s.Labels)}
		least = Shape{min(least.Batch, s.Batch), min(least.Length, s.Length), min(least.Labels, s.Labels)}
	}
	var probes []Shape
	for k := range int64(8) {
		probe := Shape{most.Batch + 1 + 3*k, most.Length*2 + 61*k*k, most.Labels + 5 + 2*k*k}
		if least.Batch == most.Batch {
			probe.Batch = most.Batch
		}
		if least.Length == most.Length {
			probe.Length = most.Length
		}
		if least.Labels == most.Labels {
			probe.Labels = most.Labels
		}
		probes = append(probes, probe)
	}
	return probes
}

// fit finds the form of sizes, one for each shape. ambiguous tells that another form as simple fits as well.
func (f *fitter) fit(sizes []int64) (found form, ambiguous bool) {
	if !slices.ContainsFunc(sizes, func(n int64) bool { return n != sizes[0] }) {
		return constant(sizes[0]), false
	}
	f.prepare()
	for _, t := range f.tried.tiers {
		if found, ambiguous, ok := f.best(f.single(t, sizes)); ok {
			return found, ambiguous
		}
	}
	if found, ambiguous, ok := f.best(f.pairs(sizes)); ok {
		return found, ambiguous
	}
	if found, ambiguous, ok := f.best(f.triples(sizes)); ok {
		return found, ambiguous
	}
	return f.closest(sizes), false
}

func (f *fitter) prepare() {
	if f.tried == nil {
		f.tried = newCandidates(f.vars, f.rows)
		f.basis = f.tried.basis()
	}
}

// familiar are the products of lengths that some class of the trace needs beyond doubt.
type familiar map[[2]int16]bool

func (k familiar) add(f form) {
	for _, t := range f.terms {
		k[[2]int16{t.b, t.c}] = true
	}
}

func (k familiar) has(f form) bool {
	return !slices.ContainsFunc(f.terms, func(t term) bool { return !k[[2]int16{t.b, t.c}] })
}

// best prefers what is familiar, then whole coefficients, then the earlier form.
func (f *fitter) best(fitting []form) (found form, ambiguous, ok bool) {
	if len(fitting) == 0 {
		return form{}, false, false
	}
	if usual := slices.DeleteFunc(slices.Clone(fitting), func(x form) bool { return !f.known.has(x) }); len(usual) > 0 {
		fitting = usual
	}
	found = fitting[0]
	if whole := slices.IndexFunc(fitting, func(x form) bool { return x.divisor == 1 }); whole >= 0 {
		found = fitting[whole]
	}
	for i := range fitting {
		ambiguous = ambiguous || f.differ(&found, &fitting[i])
	}
	return found, ambiguous, true
}

// differ tells whether two forms are apart where it matters. Half of an odd length, rounded, is as good as its half.
func (f *fitter) differ(a, b *form) bool {
	return slices.ContainsFunc(f.probes, func(v []int64) bool {
		x, y := float64(a.size(Shape{}, v)), float64(b.size(Shape{}, v))
		return math.Abs(x-y) > ambiguity*max(x, y)
	})
}

const ambiguity = 0.01

// single gives every coefficient times one monomial of the tier that fits.
func (f *fitter) single(t tier, sizes []int64) (fitting []form) {
	for _, c := range t {
		if !proportional(sizes, c.at) {
			continue
		}
		at := largest(c.at)
		divisor := gcd(sizes[at], c.at[at])
		if n := c.at[at] / divisor; n <= maxDivisor {
			fitting = append(fitting, form{terms: []term{{c.monomial, sizes[at] / divisor}}, divisor: n})
		}
	}
	return fitting
}

// proportional tells whether a / b is the same number everywhere; both hold no negative number.
func proportional(a, b []int64) bool {
	at := largest(b)
	for i := range a {
		if uint64(a[i])*uint64(b[at]) != uint64(a[at])*uint64(b[i]) { // most candidates end here
			return false
		}
		high, _ := bits.Mul64(uint64(a[i]), uint64(b[at]))
		if other, _ := bits.Mul64(uint64(a[at]), uint64(b[i])); high != other {
			return false
		}
	}
	return b[at] > 0
}

func largest(n []int64) int {
	at := 0
	for i := range n {
		if n[i] > n[at] {
			at = i
		}
	}
	return at
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// pairs gives the sums of two monomials that fit; at least one shape is left to prove them.
func (f *fitter) pairs(sizes []int64) (fitting []form) {
	for j := range f.basis {
		for i := range j {
			if found, ok := f.sum(sizes, f.basis[i], f.basis[j]); ok {
				fitting = append(fitting, found)
			}
		}
	}
	return fitting
}

// triples gives the sums of three monomials that fit. The first two of them are of the same variables as the third, or
// 1 and B: else there would be thousands.
func (f *fitter) triples(sizes []int64) (fitting []form) {
	for k := range f.basis {
		for j := range k {
			if !f.basis[k].covers(f.basis[j].monomial) {
				continue
			}
			for i := range j {
				if !f.basis[k].covers(f.basis[i].monomial) {
					continue
				}
				if found, ok := f.sum(sizes, f.basis[i], f.basis[j], f.basis[k]); ok {
					fitting = append(fitting, found)
				}
			}
		}
	}
	return fitting
}

// covers tells whether the variables of other are among m's, the batch aside.
func (m monomial) covers(other monomial) bool {
	has := func(n int16) bool { return n == variableOne || n == m.b || n == m.c }
	return has(other.b) && has(other.c)
}

// sum solves for the coefficients of some monomials, rounds them to the finest allowed, and keeps them if they then give
// every size exactly.
func (f *fitter) sum(sizes []int64, parts ...candidate) (form, bool) {
	if len(sizes) <= len(parts) {
		return form{}, false
	}
	solved, ok := solve(sizes, parts)
	if !ok {
		return form{}, false
	}
	found := form{divisor: maxDivisor}
	divisor := int64(maxDivisor)
	for i, x := range solved[:len(parts)] {
		x *= maxDivisor
		n := math.Round(x)
		if n == 0 || math.Abs(n) > 1<<52 || math.Abs(x-n) > 1e-3 {
			return form{}, false
		}
		found.terms = append(found.terms, term{parts[i].monomial, int64(n)})
		divisor = gcd(divisor, int64(math.Abs(n)))
	}
	for i := range found.terms {
		found.terms[i].coefficient /= divisor
	}
	found.divisor /= divisor
	return found, f.exact(&found, sizes)
}

func (f *fitter) exact(found *form, sizes []int64) bool {
	for i, row := range f.rows {
		sum, magnitude := int64(0), 0.0
		for _, t := range found.terms {
			sum += t.coefficient * t.value(row)
			magnitude += math.Abs(float64(t.coefficient)) * t.float(row)
		}
		if magnitude > 1<<62 || sum != sizes[i]*found.divisor {
			return false
		}
	}
	return true
}

// solve finds the coefficients with which as many rows as there are parts give their sizes, by elimination with the
// largest pivot; false when the parts cannot be told apart.
func solve(sizes []int64, parts []candidate) (x [maxTerms]float64, ok bool) {
	n := len(parts)
	m := make([][maxTerms + 1]float64, len(sizes))
	for r := range m {
		for i, p := range parts {
			m[r][i] = float64(p.at[r]) / float64(max(p.at[largest(p.at)], 1))
		}
		m[r][n] = float64(sizes[r])
	}
	for i := range n {
		pivot := i
		for r := i; r < len(m); r++ {
			if math.Abs(m[r][i]) > math.Abs(m[pivot][i]) {
				pivot = r
			}
		}
		if math.Abs(m[pivot][i]) < 1e-9 {
			return x, false
		}
		m[i], m[pivot] = m[pivot], m[i]
		for r := i + 1; r < len(m); r++ {
			share := m[r][i] / m[i][i]
			for k := i; k <= n; k++ {
				m[r][k] -= share * m[i][k]
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		x[i] = m[i][n]
		for k := i + 1; k < n; k++ {
			x[i] -= m[i][k] * x[k]
		}
		x[i] /= m[i][i]
	}
	for i, p := range parts {
		x[i] /= float64(max(p.at[largest(p.at)], 1))
	}
	return x, true
}
