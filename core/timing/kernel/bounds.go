package kernel

// Spread is measured over predicted time, or an estimate with its bounds: the 10th, 50th and 90th percentile.
type Spread struct {
	Low    float64 `json:"low"`
	Likely float64 `json:"likely"`
	High   float64 `json:"high"`
}

func (s Spread) plus(t Spread) Spread {
	return Spread{s.Low + t.Low, s.Likely + t.Likely, s.High + t.High}
}

// around is a time with the bounds of its kind.
func (s Spread) around(seconds float64) Spread {
	return Spread{seconds * min(s.Low, 1), seconds, seconds * max(s.High, 1)}
}

// widest holds both.
func (s Spread) widest(t Spread) Spread {
	return Spread{min(s.Low, t.Low), 1, max(s.High, t.High)}
}

// spreadOf is how far the operators of the tables were off that were kept from the fit. Where a card has no table, or the tables no such product, it is also as far
// as one generation's shares are off for the other.
func (m Model) spreadOf(o Operation) Spread {
	own, measured := fitted().Cards[m.card.Key]
	if !measured {
		own = fitted().Cards[m.nearest()]
	}
	spread := own.spreadOf(o)
	if o.product() && (o.DType != Float32 || !measured && !m.card.sameChip) {
		spread = spread.widest(fitted().Carried[o.table()])
	}
	return spread
}

// nearest is the fitted card whose residuals are most like this one's: slow clocks under load tell more than generations.
func (m Model) nearest() string {
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

func (f Fit) spreadOf(o Operation) Spread {
	switch {
	case o.Kind == Convolution:
		return f.Residuals["conv"]
	case o.product():
		return f.Residuals[o.table()]
	}
	if class := o.class(); class != "" {
		return f.Residuals[class]
	}
	return f.Residuals[classElementwise].widest(f.Residuals[classSoftmaxLong]).widest(f.Residuals[classNormalization])
}
