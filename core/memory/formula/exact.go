package formula

import (
	"math"
	"math/bits"
)

// multiples returns every coefficient times one monomial of the tier that fits.
func (f *Fitter) multiples(t tier, sizes []int64) (fitting []Formula) {
	for _, c := range t {
		if !proportional(sizes, c.values) {
			continue
		}
		i := largest(c.values)
		divisor := gcd(sizes[i], c.values[i])
		if n := c.values[i] / divisor; n <= maxDivisor {
			fitting = append(fitting, Formula{terms: []term{{c.monomial, sizes[i] / divisor}},
				divisor: n})
		}
	}
	return fitting
}

// proportional reports whether a / b is the same number everywhere; both hold no negative number.
func proportional(a, b []int64) bool {
	top := largest(b)
	for i := range a {
		high, low := bits.Mul64(uint64(a[i]), uint64(b[top]))
		otherHigh, otherLow := bits.Mul64(uint64(a[top]), uint64(b[i]))
		if low != otherLow || high != otherHigh {
			return false
		}
	}
	return b[top] > 0
}

func largest(n []int64) int {
	top := 0
	for i := range n {
		if n[i] > n[top] {
			top = i
		}
	}
	return top
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// pairs returns the sums of two monomials that fit; at least one shape is left to prove them.
func (f *Fitter) pairs(sizes []int64) (fitting []Formula) {
	for j := range f.basis {
		for i := range j {
			if sum, ok := f.sum(sizes, f.basis[i], f.basis[j]); ok {
				fitting = append(fitting, sum)
			}
		}
	}
	return fitting
}

// triples returns the sums of three monomials that fit: those of the same variables as the last, or
// 1 and B, and a constant with batches of two lengths, which is what a convolution's workspace
// holds. Else there would be thousands.
func (f *Fitter) triples(sizes []int64) (fitting []Formula) {
	for k := range f.basis {
		for j := range k {
			covered := f.basis[k].covers(f.basis[j].monomial)
			two := f.basis[k].isBatchOfLength() && f.basis[j].isBatchOfLength()
			if !covered && !two {
				continue
			}
			for i := range j {
				first := f.basis[i].monomial
				if !(covered && f.basis[k].covers(first)) && !(two && first == monomial{}) {
					continue
				}
				if sum, ok := f.sum(sizes, f.basis[i], f.basis[j], f.basis[k]); ok {
					fitting = append(fitting, sum)
				}
			}
		}
	}
	return fitting
}

func (m monomial) isBatchOfLength() bool {
	return m.a == variableBatch && m.b != variableOne && m.c == variableOne
}

// covers reports whether the variables of other are among m's, the batch aside.
func (m monomial) covers(other monomial) bool {
	has := func(n int16) bool { return n == variableOne || n == m.b || n == m.c }
	return has(other.b) && has(other.c)
}

// sum solves for the coefficients of some monomials, rounds them to the finest allowed, and keeps
// them if they then yield every size exactly.
func (f *Fitter) sum(sizes []int64, parts ...candidate) (Formula, bool) {
	if len(sizes) <= len(parts) {
		return Formula{}, false
	}
	solved, ok := solve(sizes, parts)
	if !ok {
		return Formula{}, false
	}
	fitted := Formula{divisor: maxDivisor}
	divisor := int64(maxDivisor)
	for i, x := range solved[:len(parts)] {
		x *= maxDivisor
		n := math.Round(x)
		if n == 0 || math.Abs(n) > 1<<52 || math.Abs(x-n) > 1e-3 {
			return Formula{}, false
		}
		fitted.terms = append(fitted.terms, term{parts[i].monomial, int64(n)})
		divisor = gcd(divisor, int64(math.Abs(n)))
	}
	for i := range fitted.terms {
		fitted.terms[i].coefficient /= divisor
	}
	fitted.divisor /= divisor
	return fitted, f.exact(&fitted, sizes)
}

func (f *Fitter) exact(fitted *Formula, sizes []int64) bool {
	for i, p := range f.points {
		if sum, ok := fitted.sum(p); !ok || sum != sizes[i]*fitted.divisor {
			return false
		}
	}
	return true
}

// solve finds the coefficients with which as many rows as there are parts yield their sizes, by
// elimination with the largest pivot; false when the parts are linearly dependent.
func solve(sizes []int64, parts []candidate) (x [maxTerms]float64, ok bool) {
	n := len(parts)
	var few [16][maxTerms + 1]float64 // shapes, as a trace has
	m := few[:min(len(sizes), len(few))]
	if len(sizes) > len(few) {
		m = make([][maxTerms + 1]float64, len(sizes))
	}
	for r := range m {
		for i, p := range parts {
			m[r][i] = p.scaled[r]
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
		x[i] /= p.scale
	}
	return x, true
}
