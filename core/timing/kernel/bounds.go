package kernel

import "github.com/asrconfig/asrconfig-go/core/timing"

// around is a time with the bounds of its kind.
func around(seconds float64, s timing.Range) timing.Range {
	return timing.Range{Low: seconds * min(s.Low, 1), Likely: seconds,
		High: seconds * max(s.High, 1)}
}

// widest holds both.
func widest(s, t timing.Range) timing.Range {
	return timing.Range{Low: min(s.Low, t.Low), Likely: 1, High: max(s.High, t.High)}
}

// spreadOf is how far the operators of the tables were off that were kept from the fit. Where a
// card has no table, or the tables no such product, it is also as far as one generation's shares
// are off for the other. Kernels that were measured on this card have the spread of that table.
func (m *Model) spreadOf(o Operation) timing.Range {
	if f, measured := m.factors[o.group()]; measured {
		return timing.Range{Low: f.Low / f.Factor, Likely: 1, High: f.High / f.Factor}
	}
	if o.Kind == Transfer {
		return transferSpread
	}
	spread := m.residuals.spreadOf(o)
	if o.product() && (o.DType != Float32 || !m.measured && !m.card.sameChip) {
		spread = widest(spread, fitted().Carried[o.table()])
	}
	return spread
}

// transferSpread holds slots of 8 lanes, and hosts that reach more than is assumed.
var transferSpread = timing.Range{Low: 0.9, Likely: 1, High: 2}

// nearest is the fitted card whose residuals are most like this one's: slow clocks under load
// matter more than generations.
func (m *Model) nearest() string {
	if m.card.onSlotPower() {
		return "T4"
	}
	return m.card.base
}

// table is the operators that a product is bounded by.
func (o Operation) table() string {
	if o.Batch > 1 {
		return "bmm"
	}
	return "linear"
}

func (f *Fit) spreadOf(o Operation) timing.Range {
	switch {
	case o.Kind == Convolution:
		return f.Residuals["conv"]
	case o.product():
		return f.Residuals[o.table()]
	}
	if class := o.class(); class != "" {
		return f.Residuals[class]
	}
	return widest(widest(f.Residuals[classElementwise], f.Residuals[classSoftmaxLong]),
		f.Residuals[classNormalization])
}
