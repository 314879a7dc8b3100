package model

import (
	"math/bits"
	"strconv"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// maxElements bounds a whole model, so that its bytes in any precision stay exact in an int64 and in a JSON number.
const maxElements = 1 << 50

// firstError keeps the first thing that went wrong; reading and counting continue with harmless values after it.
type firstError struct{ err error }

func (f *firstError) keep(err error) {
	if f.err == nil {
		f.err = err
	}
}

// parameterCounter sums the parameters that a module declares. Counts are elements.
type parameterCounter struct {
	problems *firstError
	visit    func(path string, trainable bool, dims []int) // sees every parameter; nil outside tests

	freezeFrontEnd bool // the convolutional feature encoder is frozen
	hasFrontEnd    bool // the architecture has one

	total, trainable uint64
	factored         uint64 // elements of Adafactor's second moment
	layers           int    // transformer layers declared
}

// module is a place in the module tree with the naming of torch's named_parameters().
type module struct {
	tally  *parameterCounter
	path   string
	frozen bool // parameters from here down do not require gradients
}

// child is the place below; "" is this place itself.
func (m module) child(name string) module {
	switch {
	case name == "":
		return m
	case m.path != "":
		name = m.path + "." + name
	}
	return module{tally: m.tally, path: name, frozen: m.frozen}
}

func (m module) at(index int) module { return m.child(strconv.Itoa(index)) }

// withoutGradient gives the same place with requires_grad off.
func (m module) withoutGradient() module {
	m.frozen = true
	return m
}

// frontEnd is the child that freeze_feature_encoder() freezes.
func (m module) frontEnd(name string) module {
	m.tally.hasFrontEnd = true
	m.frozen = m.frozen || m.tally.freezeFrontEnd
	return m.child(name)
}

// transformer declares a stack of n transformer layers.
func (m module) transformer(name string, n int, layer func(m module, index int)) {
	m.tally.layers += n
	for i := range n {
		layer(m.child(name).at(i), i)
	}
}

// parameter declares one tensor.
func (m module) parameter(name string, dims ...int) {
	t := m.tally
	elements, fits := product(dims...)
	sum, carry := bits.Add64(t.total, elements, 0)
	if !fits || carry != 0 || sum > maxElements {
		t.problems.keep(fault.New(fault.InvalidArgument, "check the sizes in the config",
			"%s brings the model over 2^50 parameters", m.child(name).path))
		return
	}
	t.total = sum
	if t.visit != nil {
		t.visit(m.child(name).path, !m.frozen, dims)
	}
	if !m.frozen {
		t.trainable += elements
		t.factored += factoredState(elements, dims)
	}
}

// factoredState is the size of Adafactor's second moment for one tensor: the mean over the last dimension and the mean
// over the one before it (transformers.optimization.Adafactor); a vector is kept whole.
func factoredState(elements uint64, dims []int) uint64 {
	n := len(dims)
	if n < 2 || elements == 0 {
		return elements
	}
	outer, _ := product(dims[:n-2]...) // not above elements, hence no overflow
	return outer * (uint64(dims[n-2]) + uint64(dims[n-1]))
}

// product multiplies sizes; false when it leaves 64 bits.
func product(dims ...int) (uint64, bool) {
	n := uint64(1)
	for _, d := range dims {
		high, low := bits.Mul64(n, uint64(d))
		if d < 0 || high != 0 {
			return 0, false
		}
		n = low
	}
	return n, true
}
