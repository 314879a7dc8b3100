package formula

import "slices"

// candidate is a monomial with its values at the traced shapes.
type candidate struct {
	monomial
	values []int64
	scale  float64   // the largest of these, 1 at least
	scaled []float64 // values, divided by it
}

func newCandidate(m monomial, values []int64) candidate {
	c := candidate{m, values, float64(max(values[largest(values)], 1)),
		make([]float64, len(values))}
	for i, n := range values {
		c.scaled[i] = float64(n) / c.scale
	}
	return c
}

// tier is a set of monomials of one simplicity. Within a fit the simpler tier wins; two formulas of
// one tier that fit alike but differ elsewhere are reported as ambiguous.
type tier []candidate

// candidates lists the monomials worth trying at the traced points: those whose variables vary.
type candidates struct {
	vars   Variables
	points []Point
	varies []bool // by variable
	tiers  []tier
}

// bases lists the lengths from the last to the first, with the labels before them. Where the traced
// shapes do not distinguish two lengths (one twice the other at every shape), most of a model works
// at the later one. But a convolution of stride 1 makes a length that is soon cut back to what it
// was made of, and comes after that.
func (c *candidates) bases() []int {
	lengths := c.vars
	bases := []int{len(lengths)}
	var add func(length int)
	add = func(length int) {
		bases = append(bases, length)
		for i := len(lengths) - 1; i > length; i-- {
			if *lengths[i].Of == length && lengths[i].Stride == 1 {
				add(i)
			}
		}
	}
	for i := len(lengths) - 1; i >= 0; i-- {
		if i == 0 || lengths[i].Stride > 1 {
			add(i)
		}
	}
	return bases
}

func newCandidates(vars Variables, points []Point) *candidates {
	c := &candidates{vars: vars, points: points, varies: make([]bool, vars.count())}
	for i := range c.varies {
		c.varies[i] = slices.ContainsFunc(points, func(p Point) bool {
			return p.values[i] != points[0].values[i]
		})
	}
	c.varies[variableOne] = true // it need not vary
	bases := c.bases()
	c.tiers = []tier{c.plain(bases), c.products(bases), c.derived(bases),
		c.derivedProducts(bases, false), c.derivedProducts(bases, true)}
	return c
}

// add appends m and m·B, where the points distinguish them.
func (c *candidates) add(t tier, m monomial) tier {
	for _, batch := range []int16{variableBatch, variableOne} {
		m.a = batch
		if !c.varies[m.a] || !c.varies[m.b] || !c.varies[m.c] {
			continue
		}
		values := make([]int64, len(c.points))
		fits := true
		for i, p := range c.points {
			values[i] = m.value(p.values)
			fits = fits && values[i] >= 0 && m.float(p.values) < 1<<53
		}
		if fits {
			t = append(t, newCandidate(m, values))
		}
	}
	return t
}

// plain: B, B·n, n, B·labels, labels.
func (c *candidates) plain(bases []int) tier {
	t := c.add(nil, monomial{})
	t = t[:len(t)-1] // 1 is no candidate: constants are found before
	for _, base := range bases {
		t = c.add(t, monomial{b: int16(c.vars.index(base, 0))})
	}
	return t
}

// products: n², n·labels, labels² and n·m of two lengths, with and without B.
func (c *candidates) products(bases []int) tier {
	var t tier
	for _, base := range bases {
		n := int16(c.vars.index(base, 0))
		t = c.add(t, monomial{b: n, c: n})
	}
	for i, base := range bases {
		for _, other := range bases[:i] {
			t = c.add(t, monomial{b: int16(c.vars.index(other, 0)),
				c: int16(c.vars.index(base, 0))})
		}
	}
	return t
}

// derived: one variable that a kernel made of a length.
func (c *candidates) derived(bases []int) tier {
	var t tier
	for _, base := range bases {
		for d := 1; d < len(derivations); d++ {
			t = c.add(t, monomial{b: int16(c.vars.index(base, d))})
		}
	}
	return t
}

// derivedProducts: a length times a derived one, or, with both, two derived ones. Different lengths
// do not meet in one kernel; a length and the labels do.
func (c *candidates) derivedProducts(bases []int, both bool) tier {
	var t tier
	labels := c.vars.bases() - 1
	for _, base := range bases {
		t = c.addProducts(t, base, base, both)
		if base != labels {
			t = c.addProducts(t, base, labels, both)
		}
	}
	return t
}

func (c *candidates) addProducts(t tier, base, other int, both bool) tier {
	for d := range derivations {
		for e := range derivations {
			if (d > 0 && e > 0) == both && d+e > 0 && (base != other || d <= e) {
				t = c.add(t, monomial{b: int16(c.vars.index(base, d)),
					c: int16(c.vars.index(other, e))})
			}
		}
	}
	return t
}

// basis is what sums are made of, in order of preference: 1, and the monomials of the first two
// tiers, from the input's length on, as what pads a length does it early.
func (c *candidates) basis() []candidate {
	ones := make([]int64, len(c.points))
	for i := range ones {
		ones[i] = 1
	}
	bases := c.bases()
	slices.Reverse(bases)
	return slices.Concat([]candidate{newCandidate(monomial{}, ones)}, c.plain(bases),
		c.products(bases))
}
