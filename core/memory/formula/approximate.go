package formula

import "math"

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
	for i, s := range f.shapes {
		best.traced = append(best.traced, traced{s, sizes[i]})
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
