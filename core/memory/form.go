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

// form gives a size for any shape: the sum of its terms, divided. An inexact one has factors instead of coefficients, and
// the sizes that were seen at the traced shapes.
type form struct {
	terms     []term
	divisor   int64
	columns   int64 // of a column sum, whose rows the form gives; 0: it gives bytes
	inexact   bool
	ambiguous bool              // another form as simple fits the traced shapes as well
	factors   [maxTerms]float64 // of an inexact form's terms
	residual  float64           // largest relative error of an inexact form at the traced shapes
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

// size evaluates a form, in bytes or in rows of a column sum; v are the variables of the shape.
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
	size := 0.0
	for i, t := range f.terms {
		size += f.factors[i] * t.float(v)
	}
	return uint64(min(math.Ceil(size), tooLarge))
}

// describe writes a form for people: "8·B·length7 + 4·B", "≈ 1.5·B", "(B·length7) rows".
func (f *form) describe(v variables) string {
	words := make([]string, len(f.terms))
	for i, t := range f.terms {
		factor := float64(t.coefficient) / float64(f.divisor)
		if f.inexact {
			factor = f.factors[i]
		}
		words[i] = fmt.Sprintf("%.6g", factor)
		if name := t.describe(v); name != "" {
			words[i] += "·" + name
		}
	}
	text := strings.Join(words, " + ")
	if f.columns > 0 {
		text = "(" + text + ") rows"
	}
	if f.inexact {
		return "≈ " + text
	}
	return text
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
