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

// slotPower in watts is what a slot supplies alone: cards that live on it lower their clock under load.
const slotPower = 75

// spreadOf is how far the operators of the tables were off that were kept from the fit. A card without tables has the widest of those cards that are like it:
// held back by their power, or not.
func (m Model) spreadOf(o Operation) Spread {
	if own, measured := fitted().Cards[m.card.Key]; measured {
		return own.spreadOf(o)
	}
	slot := m.card.Watts > 0 && m.card.Watts <= slotPower
	widest := Spread{1, 1, 1}
	for key, fit := range fitted().Cards {
		if (key == "T4") == slot {
			widest = widest.widest(fit.spreadOf(o))
		}
	}
	return widest
}

func (f Fit) spreadOf(o Operation) Spread {
	switch {
	case o.Kind == Convolution:
		return f.Residuals["conv"]
	case o.product() && o.Batch > 1:
		return f.Residuals["bmm"]
	case o.product():
		return f.Residuals["linear"]
	}
	if class := o.class(); class != "" {
		return f.Residuals[class]
	}
	return f.Residuals[classElementwise].widest(f.Residuals[classSoftmaxLong]).widest(f.Residuals[classNormalization])
}
