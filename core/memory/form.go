package memory

import (
	"fmt"
	"math"
	"strings"
)

// monomial is a product of at most three variables.
type monomial struct{ a, b, c int16 }

func (m monomial) value(v []int64) int64 { return v[m.a] * v[m.b] * v[m.c] }

func (m monomial) float(v []int64) float64 {
	return float64(v[m.a]) * float64(v[m.b]) * float64(v[m.c])
}

// term is a monomial with its coefficient, in units of one part of the form's divisor.
type term struct {
	monomial
	coefficient int64
}

const (
	maxTerms   = 3
	maxDivisor = 16 // of the coefficients: sizes count bytes of whole elements, eight flags in a byte at the finest
)

// form gives a size for any shape: the sum of its terms, divided. An inexact one is a share of a monomial, with the sizes
// that were seen at the traced shapes.
type form struct {
	terms     []term
	divisor   int64
	inexact   bool
	ambiguous bool    // another form as simple fits the traced shapes as well
	factor    float64 // of an inexact form's monomial
	residual  float64 // largest relative error of an inexact form at the traced shapes
	seen      []seen
}

type seen struct {
	shape Shape
	size  int64
}

// tooLarge is the size that no machine has, given where arithmetic would end. The allocator refuses it.
const tooLarge = 1 << 60

func constant(size int64) form { return form{terms: []term{{coefficient: size}}, divisor: 1} }

func (f *form) isConstant() bool {
	return !f.inexact && len(f.terms) == 1 && f.terms[0].monomial == monomial{}
}

// size evaluates a form; v are the variables of the shape.
func (f *form) size(shape Shape, v []int64) uint64 {
	if f.inexact {
		return f.inexactSize(shape, v)
	}
	var sum int64
	var magnitude float64
	for i := range f.terms {
		t := &f.terms[i]
		magnitude += math.Abs(float64(t.coefficient)) * t.float(v)
		sum += t.coefficient * t.value(v)
	}
	if magnitude > 1<<62 {
		return tooLarge
	}
	return uint64(max(sum/f.divisor, 0))
}

func (f *form) inexactSize(shape Shape, v []int64) uint64 {
	for _, s := range f.seen {
		if s.shape == shape {
			return uint64(s.size)
		}
	}
	size := math.Ceil(f.factor * f.terms[0].float(v))
	if size > tooLarge {
		return tooLarge
	}
	return uint64(size)
}

// describe writes a form for people: "8·B·length7 + 4·B".
func (f *form) describe(v variables) string {
	if f.inexact {
		return fmt.Sprintf("≈ %.6g·%s", f.factor, f.terms[0].describe(v))
	}
	words := make([]string, len(f.terms))
	for i, t := range f.terms {
		words[i] = fmt.Sprintf("%.6g", float64(t.coefficient)/float64(f.divisor))
		if t.monomial != (monomial{}) {
			words[i] += "·" + t.describe(v)
		}
	}
	return strings.Join(words, " + ")
}

func (m monomial) describe(v variables) string {
	var words []string
	for _, index := range []int16{m.a, m.b, m.c} {
		if index != variableOne {
			words = append(words, v.name(int(index)))
		}
	}
	return strings.Join(words, "·")
}
