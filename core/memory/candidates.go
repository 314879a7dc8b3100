package memory

import "slices"

// candidate is a monomial with its values at the shapes of a class.
type candidate struct {
	monomial
	at []int64
}

// tier is a set of monomials of one simplicity. Within a fit the simpler tier wins; two forms of one tier that fit alike
// but differ elsewhere are reported as ambiguous.
type tier []candidate

// candidates lists the monomials worth trying at the given rows of variables: those whose variables vary in them.
type candidates struct {
	vars  variables
	rows  [][]int64
	moves []bool // by variable
	tiers []tier
}

// bases lists the lengths from the last rung to the first, with the labels before them. Where the traced lengths do not
// tell two rungs apart (one twice the other at every shape), most of a model works at the later one. But a convolution of
// stride 1 makes a length that is soon cut back to what it was made of, and comes after that.
func (c *candidates) bases() []int {
	rungs := c.vars.rungs
	bases := []int{len(rungs)}
	var add func(rung int)
	add = func(rung int) {
		bases = append(bases, rung)
		for i := len(rungs) - 1; i > rung; i-- {
			if *rungs[i].Of == rung && rungs[i].Stride == 1 {
				add(i)
			}
		}
	}
	for i := len(rungs) - 1; i >= 0; i-- {
		if i == 0 || rungs[i].Stride > 1 {
			add(i)
		}
	}
	return bases
}

func newCandidates(vars variables, rows [][]int64) *candidates {
	c := &candidates{vars: vars, rows: rows, moves: make([]bool, vars.count())}
	for i := range c.moves {
		c.moves[i] = slices.ContainsFunc(rows, func(row []int64) bool { return row[i] != rows[0][i] })
	}
	c.moves[variableOne] = true // it need not vary
	bases := c.bases()
	c.tiers = []tier{c.plain(bases), c.products(bases), c.derived(bases), c.derivedProducts(bases, false), c.derivedProducts(bases, true)}
	return c
}

// add appends m and m·B, or what of them can be told from the rows.
func (c *candidates) add(t tier, m monomial) tier {
	for _, batch := range []int16{variableBatch, variableOne} {
		m.a = batch
		if !c.moves[m.a] || !c.moves[m.b] || !c.moves[m.c] {
			continue
		}
		at := make([]int64, len(c.rows))
		fits := true
		for i, row := range c.rows {
			at[i] = m.value(row)
			fits = fits && at[i] >= 0 && m.float(row) < 1<<53
		}
		if fits {
			t = append(t, candidate{m, at})
		}
	}
	return t
}

// plain: B, B·n, n, B·labels, labels.
func (c *candidates) plain(bases []int) tier {
	t := c.add(nil, monomial{})
	t = t[:len(t)-1] // 1 is no candidate: constants are found before
	for _, base := range bases {
		t = c.add(t, monomial{b: int16(c.vars.at(base, 0))})
	}
	return t
}

// products: n², n·labels, labels² and n·m of two rungs, with and without B.
func (c *candidates) products(bases []int) tier {
	var t tier
	for _, base := range bases {
		n := int16(c.vars.at(base, 0))
		t = c.add(t, monomial{b: n, c: n})
	}
	for i, base := range bases {
		for _, other := range bases[:i] {
			t = c.add(t, monomial{b: int16(c.vars.at(other, 0)), c: int16(c.vars.at(base, 0))})
		}
	}
	return t
}

// derived: one variable that a kernel made of a length.
func (c *candidates) derived(bases []int) tier {
	var t tier
	for _, base := range bases {
		for d := 1; d < len(derivations); d++ {
			t = c.add(t, monomial{b: int16(c.vars.at(base, d))})
		}
	}
	return t
}

// derivedProducts: a length times a derived one, or, with both, two derived ones. Different rungs do not meet in one
// kernel; a rung and the labels do.
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
				t = c.add(t, monomial{b: int16(c.vars.at(base, d)), c: int16(c.vars.at(other, e))})
			}
		}
	}
	return t
}

// basis is what sums are made of, in order of preference: 1, and the monomials of the first two tiers, from the input's
// length on, as what pads a length does it early.
func (c *candidates) basis() []candidate {
	ones := make([]int64, len(c.rows))
	for i := range ones {
		ones[i] = 1
	}
	bases := c.bases()
	slices.Reverse(bases)
	return slices.Concat([]candidate{{at: ones}}, c.plain(bases), c.products(bases))
}
